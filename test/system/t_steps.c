/*
 * A program for at_steps: its children get signals, or are killed, while they begin.
 *
 * usage: t_steps fork|vfork|work ROUNDS
 *
 * fork, vfork: by the round, a child has a default action, a handler, an ignored or a blocked
 * signal; it must end as Linux would have it.
 * work: children of vfork that change this process's memory are killed anywhere.  Its memory
 * must then have the changes that they finished, and no wrong word.
 */
#include <sys/wait.h>
#include "t_memory.h"
#include "t_steps.h"

static volatile sig_atomic_t handled;

static void handler(int sig, siginfo_t *info, void *context)
{
        (void)info;
        (void)context;
        handled = handled ? -1 : sig;
}

void restorer(void);
__asm__(".pushsection .text\n"
        "restorer: movl $15, %eax\n"    /* rt_sigreturn */
        "syscall\n"
        ".popsection\n");

/* By a call of the kernel: libc's sigaction() refuses signals 32 and 33. */
static void set_action(int sig, enum steps_mode mode)
{
        const struct { uint64_t handler, flags, restorer, mask; } a = {
                .handler = mode == STEPS_HANDLED   ? (uintptr_t)handler
                           : mode == STEPS_IGNORED ? (uintptr_t)SIG_IGN
                                                   : (uintptr_t)SIG_DFL,
                .flags = SA_SIGINFO | 0x04000000,       /* SA_RESTORER */
                .restorer = (uintptr_t)restorer,
        };

        syscall(SYS_rt_sigaction, sig, &a, NULL, sizeof(a.mask));
}

static void set_blocked(int sig, int how)
{
        uint64_t set = 1ull << (sig - 1);

        syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof(set));
}

#define PLAIN 7                         /* exit status of a child: no signal was seen */
#define SEEN  8                         /* the handler ran once, or the signal is pending */

static _Noreturn void child(int sig, enum steps_mode mode)
{
        uint64_t pending = 0;
        char byte;

        while (read(STEPS_FD, &byte, 1) != 1)
                ;
        syscall(SYS_rt_sigpending, &pending, sizeof(pending));
        bool seen = mode == STEPS_BLOCKED ? pending >> (sig - 1) & 1 : handled == sig;
        _exit(seen ? SEEN : PLAIN);
}

static bool survives_default(int sig)
{
        return sig == SIGCHLD || sig == SIGCONT || sig == SIGURG || sig == SIGWINCH ||
               sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU;
}

static int expected(int sig, enum steps_mode mode)
{
        if (sig == SIGKILL || sig == SIGSTOP)
                mode = STEPS_DEFAULT;
        if (mode == STEPS_DEFAULT)
                return survives_default(sig) ? PLAIN << 8 : sig;
        return (mode == STEPS_IGNORED ? PLAIN : SEEN) << 8;
}

static pid_t begin(bool vforks, int sig, enum steps_mode mode)
{
        pid_t pid = vforks ? vfork() : fork();

        if (pid == 0)
                child(sig, mode);
        CHECK(pid > 0);
        return pid;
}

static void signals(bool vforks, unsigned rounds)
{
        unsigned wrong = 0;
        int status;

        CHECK(waitpid(begin(vforks, SIGWINCH, STEPS_DEFAULT), &status, 0) > 0);
        CHECK(status == PLAIN << 8);
        for (unsigned r = 0; r < rounds; r++) {
                int sig = steps_signal(r);
                enum steps_mode mode = steps_mode(r);
                handled = 0;
                set_action(sig, mode);
                if (mode == STEPS_BLOCKED)
                        set_blocked(sig, SIG_BLOCK);
                pid_t pid = begin(vforks, sig, mode);
                CHECK(waitpid(pid, &status, 0) == pid);
                if ((status & ~0x80) != expected(sig, mode) && wrong++ < 10)
                        printf("round %u, signal %d, mode %d: status %#x, not %#x\n", r, sig, mode,
                               status, expected(sig, mode));
                set_action(sig, STEPS_DEFAULT);
                set_blocked(sig, SIG_UNBLOCK);
        }
        CHECK(!wrong);
}

/* ---- children that work ---- */

#define PAGES  1024ul
#define FIXED  ((char *)0x200000000)    /* the children map here */

static char *arena;

#define SHARED (FIXED + 64 * PG)
#define BOTH   (SHARED + 16 * PG)       /* shared, without a file */
#define FRESH  (FIXED + 128 * PG)
#define ALL    1024ul

/* What the child works on, made by its parent. */
static void prepare(int fd)
{
        const int fixed = MAP_FIXED;

        CHECK(munmap(FIXED, ALL * PG) == 0);
        CHECK(mmap(FIXED, 8 * PG, RW, MAP_PRIVATE | fixed, fd, 0) == FIXED);
        CHECK(mmap(SHARED, 8 * PG, RW, MAP_SHARED | fixed, fd, 0) == SHARED);
        CHECK(mmap(BOTH, 8 * PG, RW, MAP_SHARED | MAP_ANONYMOUS | fixed, -1, 0) == BOTH);
        BOTH[PG] = 3;
}

static void fetch(const volatile char *page) { (void)*page; }

/* All that makes kern ask the host for something: pages of files and of far memory, references,
 * room. */
static _Noreturn void work(unsigned r)
{
        for (unsigned i = 0; i < 40; i++)
                fetch(&arena[(r * 40 + i) * 7 % PAGES * PG]);
        FIXED[PG] = 1;
        fetch(&FIXED[5 * PG]);
        fetch(&SHARED[3 * PG]);
        munmap(FIXED + 2 * PG, 2 * PG);
        munmap(FIXED + 5 * PG, PG);
        mremap(BOTH, 8 * PG, 12 * PG, 0);
        BOTH[2 * PG] = 3;
        munmap(BOTH + 4 * PG, 2 * PG);
        munmap(SHARED, 4 * PG);
        if (mmap(FRESH, 600 * PG, RW, ANON | MAP_FIXED, -1, 0) == FRESH) {
                for (unsigned i = 0; i < 600; i++)
                        FRESH[i * PG] = (char)r;
                madvise(FRESH, 300 * PG, MADV_DONTNEED);
        }
        munmap(FIXED, ALL * PG);
        _exit(PLAIN);
}

static int test_file(void)
{
        char name[] = "/tmp/t_steps.XXXXXX";
        int fd = mkstemp(name);

        CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 8 * PG) == 0);
        return fd;
}

static void works(unsigned rounds)
{
        int status, fd = test_file();
        unsigned killed = 0;

        arena = map_pages(PAGES, RW, MAP_PRIVATE);
        fill(arena, 0, PAGES, 1);
        for (unsigned r = 0; r <= rounds; r++) {
                prepare(fd);
                pid_t pid = vfork();
                if (pid == 0)
                        work(r);
                CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
                CHECK(status == PLAIN << 8 || (status == SIGKILL && r));
                killed += status == SIGKILL;
                verify("kept", arena + r % 8 * 128 * PG, r % 8 * 128, 128, 1);
        }
        CHECK(munmap(FIXED, ALL * PG) == 0);
        fprintf(stderr, "t_steps: %u of %u killed\n", killed, rounds);
        verify("kept", arena, 0, PAGES, 1);
}

int main(int argc, char **argv)
{
        unsigned rounds = argc == 3 ? (unsigned)atoi(argv[2]) : 0;

        if (argc == 3 && strcmp(argv[1], "work") == 0)
                works(rounds);
        else if (argc == 3)
                signals(strcmp(argv[1], "vfork") == 0, rounds);
        printf("t_steps: ok\n");
        return argc != 3;
}
