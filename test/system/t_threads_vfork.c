/*
 * t_threads: vfork, whose child borrows memory and thread. (Other tests check what it executes.)
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "t_threads.h"

static volatile int shared;
static volatile pid_t child_pid, child_ppid, child_tid;

#define IN_CHILD(...) ({                        \
        pid_t pid_ = vfork();                   \
        if (pid_ == 0) {                        \
                __VA_ARGS__;                    \
                _exit(99);                      \
        }                                       \
        CHECK(pid_ > 0);                        \
        pid_; })

static int status_of(pid_t pid)
{
        int status = -1;

        CHECK(waitpid(pid, &status, 0) == pid);
        return status;
}

static void shares_memory(void)
{
        volatile int local = 1;
        pid_t pid = IN_CHILD(shared = 42; local = 2; child_pid = getpid(); child_ppid = getppid();
                             child_tid = my_tid(); _exit(7));
        int status = status_of(pid);

        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(shared == 42 && local == 2);
        CHECK(child_pid == pid && child_tid == pid && child_ppid == getpid() &&
              my_tid() == getpid() && pid != getpid());
        CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
}

/* The parent is suspended until the child has ended. */
static void suspends(void)
{
        int64_t from = now_ns(CLOCK_MONOTONIC);
        pid_t pid = IN_CHILD(sleep_ms(100); shared = 1; _exit(0));

        CHECK(shared == 1 && now_ns(CLOCK_MONOTONIC) - from >= 99 * MS);
        CHECK(status_of(pid) == 0);
}

static void dies(void)
{
        volatile double d = 1.5;
        double in_register = d * 3;
        volatile char *volatile low = (char *)8;
        pid_t pid;
        int status;
        const struct rlimit none = { 0, 0 };
        struct rlimit core;

        getrlimit(RLIMIT_CORE, &core);
        setrlimit(RLIMIT_CORE, &none);
        pid = IN_CHILD(kill(getpid(), SIGKILL));
        CHECK(WIFSIGNALED(status = status_of(pid)) && WTERMSIG(status) == SIGKILL);
        pid = IN_CHILD(*low = 1);
        CHECK(WIFSIGNALED(status = status_of(pid)) && WTERMSIG(status) == SIGSEGV);
        pid = IN_CHILD(__builtin_trap());
        CHECK(WIFSIGNALED(status = status_of(pid)) && WTERMSIG(status) == SIGILL);
        pid = IN_CHILD(raise(SIGTERM));
        CHECK(WIFSIGNALED(status = status_of(pid)) && WTERMSIG(status) == SIGTERM);
        pid = IN_CHILD(syscall(SYS_exit, 3));
        CHECK(WIFEXITED(status = status_of(pid)) && WEXITSTATUS(status) == 3);
        setrlimit(RLIMIT_CORE, &core);
        CHECK(in_register == 4.5);
}

static volatile int strangers;

static void count_stranger(int sig) { strangers += sig == SIGSTKFLT; }

/* Signals that a child blocks, which is killed while it computes, go with it. */
static void *signal_and_kill(void *arg)
{
        pid_t pid;

        while ((pid = child_pid) == 0)
                sleep_ms(1);
        for (int i = 0; i < 40; i++) {
                kill(pid, SIGSTKFLT);
                sleep_ms(10);
        }
        kill(pid, SIGKILL);
        return arg;
}

static void takes_signals_along(void)
{
        struct sigaction a = { .sa_handler = count_stranger }, was;
        pthread_t killer;
        sigset_t set;
        int status;

        sigaction(SIGSTKFLT, &a, &was);
        sigemptyset(&set);
        sigaddset(&set, SIGSTKFLT);
        strangers = 0;
        child_pid = 0;
        CHECK(pthread_create(&killer, NULL, signal_and_kill, NULL) == 0);
        pid_t pid = IN_CHILD(sigprocmask(SIG_BLOCK, &set, NULL); child_pid = getpid(); for (;;));
        CHECK(WIFSIGNALED(status = status_of(pid)) && WTERMSIG(status) == SIGKILL);
        CHECK(pthread_join(killer, NULL) == 0);
        CHECK(strangers == 0);
        sigaction(SIGSTKFLT, &was, NULL);
}

/*
 * All registers that a function may count on, and the vector registers, are as before, however the
 * child ends.
 */
static void registers(void)
{
        for (int way = 0; way < 4; way++) {
                uint64_t out[5] = { 0 };
                double xmm = 0, in = 2.25 + way;
                long pid = SYS_vfork;

                __asm__ volatile(
                        "movq $0x1111, %%rbx\n movq $0x2222, %%r12\n movq $0x3333, %%r13\n movq "
                        "$0x4444, %%r14\n movq %[out], %%r15\n"
                        "movsd %[in], %%xmm9\n"
                        "syscall\n"
                        "testq %%rax, %%rax\n jnz 1f\n"
                        "xorl %%ebx, %%ebx\n xorl %%r12d, %%r12d\n xorl %%r13d, %%r13d\n movl $7, "
                        "%%r14d\n xorps %%xmm9, %%xmm9\n"
                        "movl %[way], %%edi\n testl %%edi, %%edi\n jz 2f\n"
                        "cmpl $1, %%edi\n je 3f\n cmpl $2, %%edi\n je 4f\n"
                        "movl %[getpid], %%eax\n syscall\n movl %%eax, %%edi\n movl $9, %%esi\n "
                        "movl %[kill], %%eax\n syscall\n" /* SIGKILL */
                        "5: jmp 5b\n"
                        "4: movq $8, %%rax\n movq %%rax, (%%rax)\n"
                        "3: ud2\n"
                        "2: movl %[exit], %%eax\n movl $11, %%edi\n syscall\n"
                        "1: movq %%rbx, (%%r15)\n movq %%r12, 8(%%r15)\n movq %%r13, 16(%%r15)\n "
                        "movq %%r14, 24(%%r15)\n"
                        "movsd %%xmm9, %[xmm]\n"
                        : "+a"(pid), [xmm] "=m"(xmm), "+m"(out)
                        : [out] "r"((uint64_t *)out), [in] "m"(in), [way] "m"(way),
                          [getpid] "i"(SYS_getpid), [kill] "i"(SYS_kill), [exit] "i"(SYS_exit_group)
                        : "rbx", "r12", "r13", "r14", "r15", "rcx", "r11", "rdi", "rsi", "xmm9",
                          "memory", "cc");
                const int dead[] = { 0, SIGILL, SIGSEGV, SIGKILL };
                CHECK(pid > 0);
                int status = status_of((pid_t)pid);
                CHECK((status & 0x7f) == dead[way]);
                CHECK(out[0] == 0x1111 && out[1] == 0x2222 && out[2] == 0x3333 &&
                      out[3] == 0x4444 && xmm == in);
        }
}

static _Atomic int handled;
static void handler(int sig) { (void)sig; handled++; }

static void keeps_to_itself(void)
{
        struct sigaction sa = { .sa_handler = handler }, old;
        sigset_t all, now;
        int fd = open("/dev/null", O_RDONLY), status;
        static char room[65536];
        const stack_t mine = { .ss_sp = room, .ss_size = sizeof(room) },
                      none = { .ss_flags = SS_DISABLE };
        stack_t its;

        CHECK(sigaltstack(&mine, NULL) == 0);
        CHECK(fd >= 0 && signal(SIGUSR1, SIG_IGN) != SIG_ERR);
        pid_t pid = IN_CHILD(
                close(fd);
                dup2(1, 77);
                if (sigaltstack(NULL, &its) || its.ss_sp != room)
                        _exit(2);
                sigaltstack(&none, NULL);
                sigaction(SIGUSR1, &sa, NULL);
                raise(SIGUSR1);
                sigfillset(&all);
                sigprocmask(SIG_SETMASK, &all, NULL);
                _exit(fcntl(fd, F_GETFD) == -1 && fcntl(77, F_GETFD) == 0 && handled == 1 ? 0 : 1));
        CHECK((status = status_of(pid)) == 0);
        CHECK(sigaltstack(&none, &its) == 0 && its.ss_sp == room);
        CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(77, F_GETFD) == -1);
        CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_IGN);
        CHECK(raise(SIGUSR1) == 0 && handled == 1);
        CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGTERM));
        signal(SIGUSR1, SIG_DFL);
        close(fd);
}

/* Mappings that the child makes and removes are the parent's too. */
static void maps(void)
{
        char *volatile p = NULL, *volatile q = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int status = status_of(IN_CHILD(
                p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                for (int i = 0; i < 1 << 20; i += 4096)
                        p[i] = 'c';
                munmap(q, 8192);
                _exit(p == MAP_FAILED)));

        CHECK(status == 0);
        for (volatile int i = 0; i < 1 << 20; i += 4096)
                CHECK(p[i] == 'c');
        CHECK(munmap(p, 1 << 20) == 0 && msync(q, 4096, MS_ASYNC) == -1 && errno == ENOMEM);
}

static void many(void)
{
        for (volatile int i = 0; i < 200; i++) {
                int status = status_of(IN_CHILD(shared = i; _exit(i)));
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == i && shared == i);
        }
}

static bool holds(volatile uint32_t *p, uint32_t n, uint32_t add)
{
        for (uint32_t i = 0; i < n; i++)
                if (p[i * 1024] != i + add)
                        return false;
        return true;
}

static void set(volatile uint32_t *p, uint32_t n, uint32_t add)
{
        for (uint32_t i = 0; i < n; i++)
                p[i * 1024] = i + add;
}

/* A process of its own, for this has to be the first time that memory runs short. */
static void child_fills_memory(void)
{
        enum { PAGES = 3000 };
        pid_t pid = fork();

        if (pid < 0 && errno == ENOSYS)
                return;                 /* a node that children cannot use */
        if (pid == 0) {
                volatile uint32_t *p = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                CHECK(status_of(IN_CHILD(set(p, PAGES, 1); _exit(0))) == 0);
                CHECK(holds(p, PAGES, 1));
                set(p, PAGES, 2);
                pid_t next = fork();
                if (next == 0)
                        _exit(holds(p, PAGES, 2) ? 5 : 1);
                CHECK(status_of(next) == 5 << 8 && holds(p, PAGES, 2));
                _exit(failures != 0);
        }
        CHECK(status_of(pid) == 0);
}

/*
 * A child that makes children of its own, and then ends in each of the ways: it is still its
 * parent's guest.
 */
static int grandchildren(void)
{
        int ended = status_of(IN_CHILD(shared++; _exit(3))),
            killed = status_of(IN_CHILD(shared++; kill(getpid(), SIGKILL)));

        return WIFEXITED(ended) && WEXITSTATUS(ended) == 3 && WIFSIGNALED(killed) &&
               WTERMSIG(killed) == SIGKILL;
}

static int great_grandchildren(void)
{
        int status = status_of(IN_CHILD(_exit(grandchildren() ? 5 : 1)));

        return WIFEXITED(status) && WEXITSTATUS(status) == 5;
}

static void nested(void)
{
        int status;

        shared = 0;
        CHECK(WIFEXITED(status = status_of(IN_CHILD(_exit(grandchildren() ? 4 : 1)))) &&
              WEXITSTATUS(status) == 4 && shared == 2);
        CHECK(WIFEXITED(status = status_of(IN_CHILD(_exit(great_grandchildren() ? 6 : 1)))) &&
              WEXITSTATUS(status) == 6 && shared == 4);
        CHECK(WIFSIGNALED(status = status_of(IN_CHILD(grandchildren(); raise(SIGTERM)))) &&
              WTERMSIG(status) == SIGTERM && shared == 6);
        CHECK(WIFEXITED(status = status_of(IN_CHILD(grandchildren();
                                                    execl("/bin/false", "false", (char *)NULL)))) &&
              WEXITSTATUS(status) == 1);
        CHECK(shared == 8);
}

/* ---- with threads ---- */

static _Atomic bool stop;

static void *computes(void *arg)
{
        uint64_t x = 1, y = 1;

        while (!stop) {
                x = x * 6364136223846793005 + 1;
                y = y * 6364136223846793005 + 1;
        }
        CHECK(x == y);
        return arg;
}

static void *faults(void *arg)
{
        enum { SIZE = 12 << 20 };
        uint32_t *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        for (uint32_t i = 0; i < SIZE / 4; i += 1024)
                p[i] = i;
        for (uint32_t x = 1; !stop; x = x * 1664525 + 1013904223) {
                uint32_t i = x % (SIZE / 4096) * 1024;
                CHECK(p[i] == i);
        }
        munmap(p, SIZE);
        return arg;
}

static void *vforks(void *me)
{
        const int n = 100 / 2;
        volatile int own;

        for (volatile int i = 0; i < n; i++) {
                int status = status_of(IN_CHILD(own = i; _exit(i)));
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == i && own == i);
                if (i % 8 == (int)(intptr_t)me) {
                        status = status_of(IN_CHILD(kill(getpid(), SIGKILL)));
                        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
                }
        }
        return NULL;
}

static void from_threads(void)
{
        pthread_t other[2], id[4];

        stop = false;
        other[0] = start(computes, NULL);
        other[1] = start(faults, NULL);
        for (intptr_t i = 0; i < 4; i++)
                id[i] = start(vforks, (void *)i);
        for (volatile int i = 0; i < 4; i++)
                finish(id[i]);
        stop = true;
        finish(other[0]);
        finish(other[1]);
}

/* Other threads continue while one is suspended, and the child talks to them by memory. */
static _Atomic uint32_t word;

static void *answers(void *arg)
{
        while (word != 1)
                futex_(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        word = 2;
        futex_(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        return arg;
}

static void others_go_on(void)
{
        pthread_t id = start(answers, NULL);
        int status = status_of(IN_CHILD(
                word = 1; futex_(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
                for (int64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;
                     word != 2 && now_ns(CLOCK_MONOTONIC) < end;)
                        futex_(&word, FUTEX_WAIT_PRIVATE, 1, &(struct timespec){ 1, 0 }, NULL, 0);
                _exit(word == 2 ? 0 : 1)));

        finish(id);
        CHECK(status == 0);
}

/* Signals for the parent wait for it, or find another thread. */
static void signals_meanwhile(void)
{
        struct sigaction sa = { .sa_handler = handler };
        pid_t parent = getpid();

        handled = 0;
        sigaction(SIGUSR2, &sa, NULL);
        for (volatile int i = 1; i <= 20; i++) {
                CHECK(status_of(IN_CHILD(kill(parent, SIGUSR2); _exit(0))) == 0);
                CHECK(handled == i);
        }
        signal(SIGUSR2, SIG_DFL);
}

const struct test vfork_tests[] = {
        { "vfork", "memory and ids", shares_memory },
        { "vfork", "the parent is suspended", suspends },
        { "vfork", "deaths", dies },
        { "vfork", "a child's own signals", takes_signals_along },
        { "vfork", "registers", registers },
        { "vfork", "descriptors, dispositions, mask", keeps_to_itself },
        { "vfork", "mappings", maps },
        { "vfork", "200 in a row", many },
        { "vfork", "in the child of another", nested },
        { "vfork", "a child that fills the memory first", child_fills_memory },
        { "vfork", "others go on", others_go_on },
        { "vfork", "signals meanwhile", signals_meanwhile },
        { "vfork", "from four threads at once, while others compute and fault", from_threads },
        { NULL, NULL, NULL }
};
