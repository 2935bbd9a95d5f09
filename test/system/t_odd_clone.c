/*
 * t_odd: clone and clone3.
 *
 * A child makes one call, exit, and touches no memory, so that it may have any stack. Its parent
 * blocks all signals that can be blocked: any of them may tell of the child's end.
 *
 * Not drawn, because vmrun is known to differ (docs/syscalls.md), or the answer depends on Linux:
 *   a process in its parent's memory without CLONE_VFORK, or one of its own memory with CLONE_VFORK
 *   or CLONE_FILES                          vmrun: ENOSYS
 *   a thread without one of THREAD_NEEDS, or with more than THREAD_KNOWS       vmrun: EINVAL
 *   a control group, and numbers of the child that are no error                vmrun: EPERM
 *   CLONE_NEWTIME                           vmrun: EINVAL, as without CONFIG_TIME_NS
 *   CLONE_PIDFD of a thread                 since Linux 6.9; vmrun: EINVAL
 *   one word for the child's number and the pidfd      vmrun stores the pidfd last
 *   other namespaces                        t_ns has them
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "t_odd.h"

#define PG 4096ul
#define INTO_CGROUP 0x200000000ull
#define CLEAR_SIGHAND 0x100000000ull
#define DETACHED 0x400000u
#define THREAD_NEEDS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)
#define THREAD_KNOWS                                                                             \
        (THREAD_NEEDS | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | \
         CLONE_CHILD_CLEARTID | DETACHED | CLONE_IO | CLONE_PTRACE | CLONE_UNTRACED)

/* In the window: words for the results, a page for the struct, a read-only page, a hole. */
#define WORDS    ((int *)WINDOW)
#define STRUCT   (WINDOW + PG)
#define CONSTANT (WINDOW + 2 * PG)
#define HOLE     (WINDOW + 3 * PG)

struct clone3 {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
                set_tid_size, cgroup;
};
#define FIRST_SIZE 64

/* --- the call --- */

/* The child exits with 7, without a stack. */
static long call(long nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
        register uint64_t r10 __asm__("r10") = d;
        register uint64_t r8 __asm__("r8") = e;
        long result;

        __asm__ volatile("syscall\n"
                         "testq %%rax, %%rax\n"
                         "jnz 1f\n"
                         "movl $7, %%edi\n"
                         "movl $60, %%eax\n"                    /* exit */
                         "syscall\n"
                         "1:"
                         : "=a"(result)
                         : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                         : "rcx", "r11", "memory");
        return result;
}

/* Are the answers of vmrun and Linux known to differ? */
static bool known(uint64_t flags)
{
        if (flags & CLONE_THREAD)
                return (flags & CLONE_SIGHAND) && (flags & CLONE_VM) &&
                       ((flags & THREAD_NEEDS) != THREAD_NEEDS ||
                        (flags & ~(uint64_t)THREAD_KNOWS));
        if (flags & CLONE_VM)
                return !(flags & CLONE_VFORK);
        return flags & (CLONE_FILES | CLONE_VFORK);
}

/* --- arguments --- */

static uint64_t some_pointer(void)
{
        const uint64_t odd[] = { 0, 1, (uint64_t)CONSTANT, (uint64_t)HOLE, (uint64_t)HOLE - 2,
                                 USER_END, 1ul << 47, -1ul, (uint64_t)&WORDS[3] + 1 };
        return draw(3) ? (uint64_t)&WORDS[draw(3)] : ONE_OF(odd);
}

static uint64_t some_flags(void)
{
        static const uint64_t bits[] = {
                CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_PIDFD, CLONE_PTRACE,
                CLONE_VFORK, CLONE_PARENT, CLONE_THREAD, CLONE_SYSVSEM, CLONE_SETTLS,
                CLONE_PARENT_SETTID, CLONE_CHILD_CLEARTID, CLONE_UNTRACED, CLONE_CHILD_SETTID,
                CLONE_IO, DETACHED,
        };
        static const uint64_t usual[] = { 0, 0, CLONE_VM | CLONE_VFORK, THREAD_NEEDS };
        uint64_t flags = ONE_OF(usual);

        for (uint64_t n = draw(4); n > 0; n--)
                flags ^= ONE_OF(bits);
        /* Errors only: these are never made. */
        if (draw(8) == 0)
                flags |= CLONE_NEWNS | CLONE_FS;
        if (draw(8) == 0)
                flags |= CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWPID;
        return flags;
}

/* A signal that can be blocked. */
static uint64_t some_signal(void)
{
        static const uint64_t odd[] = { 0, SIGUSR1, 64, 65, 128, 255, 256, 1ul << 32, -1ul };
        return draw(3) ? SIGCHLD : ONE_OF(odd);
}

static uint64_t some_tls(void)
{
        static const uint64_t odd[] = { 0, USER_END - 1, USER_END, 1ul << 47, 1ul << 63, -1ul };
        return draw(2) ? (uint64_t)WINDOW : ONE_OF(odd);
}

/* --- the result --- */

static void say_pointer(const char *name, uint64_t p)
{
        if (p - (uint64_t)WINDOW < 4 * PG)
                printf(", %s +%lx", name, p - (uint64_t)WINDOW);
        else
                printf(", %s %#lx", name, p);
}

static void say_word(const char *name, int value, long child)
{
        if (value && (long)value == child)
                printf(", %s: its number", name);
        else
                printf(", %s: %d", name, value);
}

/* A thread stores its number at its beginning, and clears it at its end. */
static void await_thread(long tid)
{
        for (int turns = 0; turns < 100000 && syscall(SYS_tgkill, getpid(), tid, 0) == 0; turns++)
                usleep(100);
}

static void say_result(long result, uint64_t flags)
{
        int status = 0;

        if (result < 0) {
                printf("%s\n", strerrorname_np((int)-result));
                return;
        }
        printf("child");
        if (flags & CLONE_THREAD)
                await_thread(result);
        else if (waitpid((pid_t)result, &status, __WALL) == result)
                printf(", status %#x", status);
        else
                printf(", %s", strerrorname_np(errno));
        for (int i = 0; i < 3; i++)
                say_word("word", WORDS[i], result);
        printf("\n");
        close_range(3, ~0U, 0);
}

/* --- cases --- */

static void say_flags(const char *name, uint64_t flags) { printf("%s(flags %#lx", name, flags); }

static void clone_old(void)
{
        uint64_t flags, parent = some_pointer(), child = some_pointer(), tls = some_tls();
        uint64_t stack = draw(2) ? 0 : some_pointer();

        if (child == parent)
                child = 0;
        do
                flags = some_flags();
        while (known(flags));
        flags |= some_signal() & CSIGNAL;
        flags |= draw(16) == 0 ? 1ul << 32 : 0;
        say_flags("clone", flags);
        say_pointer("stack", stack);
        say_pointer("parent", parent);
        say_pointer("child", child);
        say_pointer("tls", tls);
        printf(") = ");
        fflush(stdout);                 /* for a call that ends the process */
        say_result(call(SYS_clone, flags, stack, parent, child, tls), flags);
}

static uint64_t some_size(void)
{
        static const uint64_t sizes[] = { 0, 8, 63, 64, 65, 72, 80, 81, 88, 89, 96, 128, 4095,
                                          4096, 4097, 1ul << 32, -1ul };
        return draw(3) ? 88 : ONE_OF(sizes);
}

static void set_up(struct clone3 *c)
{
        static const uint64_t unknown[] = { 1ull << 34, 1ull << 63, 1, 0x40, 0x7f, DETACHED };
        static const uint64_t stacks[][2] = { { 0, PG }, { (uint64_t)STRUCT, 0 },
                                              { (uint64_t)STRUCT, PG }, { USER_END - PG, PG },
                                              { USER_END, PG }, { 1ul << 63, PG },
                                              { (uint64_t)STRUCT, -PG }, { 1, -1ul } };
        static const uint64_t sets[][2] = { { 0, 1 }, { 1, 0 }, { (uint64_t)STRUCT, 33 },
                                            { (uint64_t)STRUCT, -1ul }, { (uint64_t)HOLE, 1 },
                                            { 1ul << 63, 2 } };

        do
                c->flags = some_flags();
        while (known(c->flags) || (c->flags & (CLONE_THREAD | CLONE_PIDFD)) ==
                                          (CLONE_THREAD | CLONE_PIDFD));
        c->flags |= draw(6) == 0 ? CLEAR_SIGHAND : 0;
        c->flags |= draw(10) == 0 ? ONE_OF(unknown) : 0;
        c->pidfd = some_pointer();
        c->child_tid = some_pointer();
        if (c->child_tid == c->pidfd)
                c->child_tid = 0;
        c->parent_tid = some_pointer();
        c->exit_signal = c->flags & (CLONE_THREAD | CLONE_PARENT) && draw(4) ? 0 : some_signal();
        c->tls = some_tls();
        if (draw(4) == 0)
                memcpy(&c->stack, ONE_OF(stacks), sizeof(stacks[0]));
        if (draw(8) == 0)
                memcpy(&c->set_tid, ONE_OF(sets), sizeof(sets[0]));
        c->cgroup = draw(8) ? 0 : 1ul << 31;
        c->flags |= c->cgroup && draw(2) ? INTO_CGROUP : 0;
}

static void clone_new(void)
{
        struct clone3 c = { 0 };
        uint64_t size = some_size();
        /* The struct ends where nothing may be written, or where nothing is. */
        static const uint64_t where[] = { (uint64_t)STRUCT, (uint64_t)CONSTANT, 0, 1ul << 63,
                                          (uint64_t)HOLE, (uint64_t)HOLE - 40, USER_END };
        uint64_t at = draw(4) ? (uint64_t)STRUCT : ONE_OF(where);

        set_up(&c);
        memset(STRUCT, 0, PG);
        memcpy(STRUCT, &c, sizeof(c));
        if (size > sizeof(c) && size <= PG && draw(2))
                STRUCT[draw(2) ? size - 1 : sizeof(c)] = 1;
        if (at == (uint64_t)STRUCT && draw(4) == 0 && size <= PG && size >= FIRST_SIZE) {
                at = (uint64_t)HOLE - size;
                mprotect(CONSTANT, PG, PROT_READ | PROT_WRITE);
                memcpy((void *)at, STRUCT, size);
                mprotect(CONSTANT, PG, PROT_READ);
        }
        say_flags("clone3", c.flags);
        say_pointer("pidfd", c.pidfd);
        say_pointer("child", c.child_tid);
        say_pointer("parent", c.parent_tid);
        printf(", signal %#lx", c.exit_signal);
        say_pointer("stack", c.stack);
        printf(" %#lx", c.stack_size);
        say_pointer("tls", c.tls);
        say_pointer("set_tid", c.set_tid);
        printf(" %#lx, cgroup %#lx", c.set_tid_size, c.cgroup);
        say_pointer("at", at);
        printf(", size %#lx, behind %d) = ", size, STRUCT[sizeof(c)]);
        fflush(stdout);
        say_result(call(SYS_clone3, at, size, 0, 0, 0), c.flags);
}

void clone_case(void)
{
        memset(WORDS, 0, PG);
        if (draw(3))
                clone_new();
        else
                clone_old();
}

void clone_begin(void)
{
        sigset_t all;

        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        if (mmap(WINDOW, 3 * PG, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != WINDOW ||
            mprotect(CONSTANT, PG, PROT_READ) != 0)
                perror("t_odd: memory for clone");
}
