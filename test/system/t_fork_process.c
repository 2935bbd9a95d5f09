/*
 * t_fork: processes, their ends, their signals, and the state that they inherit beside memory.
 */
#include <dirent.h>
#include <fenv.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "t_fork.h"

static pid_t own_tid(void) { return (pid_t)syscall(SYS_gettid); }

static void test_ids(void)
{
        pid_t parent = getpid(), session = getsid(0);
        pid_t child = start_child();
        if (!child) {
                CHECK(getpid() != parent && getppid() == parent && own_tid() == getpid() &&
                      getsid(0) == session);
                CHECK(setpgid(0, 0) == 0 && getpgrp() == getpid());
                pid_t grandchild = start_child();
                if (!grandchild) {
                        CHECK(setsid() == getpid() && getsid(0) == getpid());
                        _exit(0);
                }
                reap(grandchild, 0);
                _exit(0);
        }
        reap(child, 0);
        CHECK(getpid() == parent);
}

static void test_ends(void)
{
        pid_t child;

        for (int code = 0; code < 256; code += 51) {
                if (!(child = start_child()))
                        _exit(code);
                reap(child, code << 8);
        }
        static const int deadly[] = { SIGKILL, SIGTERM, SIGHUP, SIGPIPE, SIGALRM, SIGUSR1 };
        for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
                if (!(child = start_child())) {
                        signal(deadly[i], SIG_DFL);             /* nohup, for one, has it ignored */
                        raise(deadly[i]);
                        for (;;)
                                pause();
                }
                reap(child, deadly[i]);
        }
        if (!(child = start_child())) {
                prctl(PR_SET_DUMPABLE, 0);
                volatile uintptr_t nowhere = 8;
                *(volatile int *)nowhere = 1;
                _exit(0);
        }
        reap(child, SIGSEGV);
        FAILS(ECHILD, waitpid(-1, NULL, 0));
        /* A zombie is one until it is waited for. */
        if (!(child = start_child()))
                _exit(3);
        siginfo_t info;
        CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == child &&
              info.si_status == 3);
        CHECK(kill(child, 0) == 0);
        reap(child, 3 << 8);
        FAILS(ESRCH, kill(child, 0));
        /* Stopped and continued. */
        int status;
        if (!(child = start_child()))
                for (;;)
                        pause();
        CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child &&
              WIFSTOPPED(status));
        CHECK(waitpid(child, &status, WNOHANG | WUNTRACED) == 0);
        CHECK(kill(child, SIGCONT) == 0 && waitpid(child, &status, WCONTINUED) == child &&
              WIFCONTINUED(status));
        CHECK(kill(child, SIGKILL) == 0);
        reap(child, SIGKILL);
}

static void test_orphans(void)
{
        int end[2];
        char c;

        CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 && pipe(end) == 0);
        pid_t child = start_child();
        if (!child) {
                pid_t parent = getpid(), grandchild = start_child();
                if (grandchild)
                        _exit(0);
                while (getppid() == parent)
                        usleep(1000);
                CHECK(write(end[1], "x", 1) == 1);
                _exit(7);
        }
        reap(child, 0);
        CHECK(read(end[0], &c, 1) == 1);
        int status;
        CHECK(waitpid(-1, &status, 0) > 0 && status == 7 << 8);
        close(end[0]);
        close(end[1]);
        CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0);
}

static void test_pipes(void)
{
        int there[2], back[2];
        uint32_t n, got;

        CHECK(pipe(there) == 0 && pipe(back) == 0);
        pid_t child = start_child();
        if (!child) {
                close(there[1]);
                close(back[0]);
                while (read(there[0], &n, 4) == 4) {
                        n = n * 2 + 1;
                        CHECK(write(back[1], &n, 4) == 4);
                }
                _exit(0);
        }
        close(there[0]);
        close(back[1]);
        for (n = 0; n < 300; n++)
                CHECK(write(there[1], &n, 4) == 4 && read(back[0], &got, 4) == 4 &&
                      got == n * 2 + 1);
        close(there[1]);
        CHECK(read(back[0], &got, 4) == 0);
        reap(child, 0);
        close(back[0]);
        /* Descriptors are the child's own, files and their offsets are shared. */
        int fd = open("t_fork.fd", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && unlink("t_fork.fd") == 0 && write(fd, "parent", 6) == 6);
        if (!(child = start_child())) {
                CHECK(write(fd, " child", 6) == 6 && close(fd) == 0 && close_range(3, ~0u, 0) == 0);
                _exit(0);
        }
        reap(child, 0);
        CHECK(lseek(fd, 0, SEEK_CUR) == 12 && close(fd) == 0);
}

static volatile sig_atomic_t told, told_status;
static volatile pid_t told_pid;
static void on_child(int sig, siginfo_t *info, void *context)
{
        (void)sig;
        (void)context;
        told++;
        told_pid = info->si_pid;
        told_status = info->si_status;
}

static volatile pid_t forked_in_handler;
static void on_usr1(int sig)
{
        (void)sig;
        forked_in_handler = fork();
}

static void test_signals(void)
{
        struct sigaction sa = { .sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART },
                         old;
        sigset_t set, before, now;
        pid_t child;

        CHECK(sigaction(SIGCHLD, &sa, &old) == 0);
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        for (int i = 0; i < 10; i++) {
                CHECK(sigprocmask(SIG_BLOCK, &set, &before) == 0);
                told = 0;
                if (!(child = start_child()))
                        _exit(i);
                while (!told)
                        sigsuspend(&before);
                CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
                CHECK(told == 1 && told_pid == child && told_status == i);
                reap(child, i << 8);
        }
        CHECK(sigaction(SIGCHLD, &old, NULL) == 0);

        /* In a handler: the child returns from it as well. */
        sa = (struct sigaction){ .sa_handler = on_usr1 };
        CHECK(sigaction(SIGUSR1, &sa, &old) == 0);
        fflush(stdout);
        raise(SIGUSR1);
        if (forked_in_handler == 0) {
                CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));
                _exit(33);
        }
        reap(forked_in_handler, 33 << 8);

        /*
         * Mask, handlers and alternate stack are inherited; pending signals, alarms and timers
         * are not.
         */
        static char room[65536];
        stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) }, is;
        CHECK(sigaltstack(&stack, NULL) == 0);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        CHECK(sigprocmask(SIG_BLOCK, &set, &before) == 0 && raise(SIGUSR2) == 0);
        alarm(1000);
        if (!(child = start_child())) {
                CHECK(sigaltstack(NULL, &is) == 0 && is.ss_sp == room &&
                      is.ss_size == sizeof(room) && is.ss_flags == 0);
                CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR2));
                CHECK(sigpending(&now) == 0 && !sigismember(&now, SIGUSR2));
                CHECK(alarm(0) == 0 && sigaction(SIGUSR1, NULL, &sa) == 0 &&
                      sa.sa_handler == on_usr1);
                _exit(0);
        }
        reap(child, 0);
        CHECK(alarm(0) > 0 && sigpending(&now) == 0 && sigismember(&now, SIGUSR2));
        int sig;
        CHECK(sigwait(&set, &sig) == 0 && sig == SIGUSR2);
        CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && sigaction(SIGUSR1, &old, NULL) == 0);
        stack.ss_flags = SS_DISABLE;
        CHECK(sigaltstack(&stack, NULL) == 0);

        /* A signal to the group finds parent and child, also while forks are under way. */
        int held[2];
        char c;
        CHECK(pipe(held) == 0);
        if (!(child = start_child())) {
                CHECK(setpgid(0, 0) == 0);
                signal(SIGTERM, SIG_DFL);
                for (int i = 0; i < 5; i++)
                        if (!start_child())
                                for (;;)
                                        pause();
                kill(0, SIGTERM);
                for (;;)
                        pause();
        }
        reap(child, SIGTERM);
        CHECK(close(held[1]) == 0 && read(held[0], &c, 1) == 0 &&
              close(held[0]) == 0); /* no process is left that has it */
}

/* The registers that no C code keeps over a call. */
static void test_registers(void)
{
        uint64_t in[2] = { 0x0123456789abcdef, 0xfedcba9876543210 }, out[2] = { 0 },
                 r12 = 0x1212121212121212, got12 = 0;
        long pid = SYS_fork;

        CHECK(fesetround(FE_DOWNWARD) == 0);
        fflush(stdout);
        __asm__ volatile("movdqu %2, %%xmm7\n\tmovq %4, %%r12\n\tsyscall\n\tmovdqu %%xmm7, "
                         "%1\n\tmovq %%r12, %3"
                         : "+a"(pid), "=m"(out)
                         : "m"(in), "m"(got12), "r"(r12)
                         : "rcx", "r11", "r12", "xmm7", "memory");
        CHECK(pid >= 0);
        bool right =
                memcmp(in, out, sizeof(in)) == 0 && got12 == r12 && fegetround() == FE_DOWNWARD;
        if (pid == 0)
                _exit(right ? 0 : 9);
        CHECK(right && fesetround(FE_TONEAREST) == 0);
        reap((pid_t)pid, 0);
}

static int on_own_stack(void *arg)
{
        volatile char room[8192];
        memset((void *)room, 1, sizeof(room));
        return *(int *)arg + room[100];
}

static void test_clone(void)
{
        static char stack[65536] __attribute__((aligned(16)));
        int32_t tid[2] = { 0 }, fd = -1, arg = 41, status;
        pid_t child;

        /* With a stack of its own, and another signal than SIGCHLD at its end. */
        child = clone(on_own_stack, stack + sizeof(stack), SIGCHLD, &arg);
        CHECK(child > 0);
        reap(child, 42 << 8);
        signal(SIGUSR2, SIG_IGN);
        child = clone(on_own_stack, stack + sizeof(stack), SIGUSR2, &arg);
        CHECK(child > 0);
        FAILS(ECHILD, waitpid(child, &status, 0));
        CHECK(waitpid(child, &status, __WCLONE) == child && status == 42 << 8);
        signal(SIGUSR2, SIG_DFL);

        fflush(stdout);
        child = (pid_t)syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, NULL,
                               &tid[0], &tid[1], NULL);
        CHECK(child >= 0);
        if (!child)
                _exit(tid[1] == getpid() ? 0 : 9);
        CHECK(tid[0] == child && tid[1] == 0);
        reap(child, 0);
        child = (pid_t)syscall(SYS_clone, CLONE_PIDFD | CLONE_FS | SIGCHLD, NULL, &fd, NULL, NULL);
        CHECK(child >= 0);
        if (!child) {
                chdir("/");
                _exit(0);
        }
        siginfo_t info = { 0 };
        CHECK(fd >= 3 && waitid(P_PIDFD, (id_t)fd, &info, WEXITED) == 0 && info.si_pid == child &&
              info.si_status == 0);
        close(fd);
        char cwd[4096];
        CHECK(getcwd(cwd, sizeof(cwd)) && strcmp(cwd, "/") == 0);       /* CLONE_FS */
        /* clone3, and no handlers in the child. */
        struct {
                uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
        } three = { .flags = 0x100000000 /* CLONE_CLEAR_SIGHAND */ | CLONE_CHILD_SETTID,
                    .child_tid = (uintptr_t)&tid[1],
                    .exit_signal = SIGCHLD };
        struct sigaction sa;
        signal(SIGUSR1, on_usr1);
        signal(SIGHUP, SIG_IGN);
        child = (pid_t)syscall(SYS_clone3, &three, sizeof(three));
        CHECK(child >= 0);
        if (!child) {
                CHECK(sigaction(SIGUSR1, NULL, &sa) == 0 && sa.sa_handler == SIG_DFL);
                CHECK(sigaction(SIGHUP, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN);
                raise(SIGUSR1);
                _exit(tid[1]);
        }
        reap(child, SIGUSR1);
        CHECK(sigaction(SIGUSR1, NULL, &sa) == 0 && sa.sa_handler == on_usr1);
        signal(SIGUSR1, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        FAILS(EINVAL, syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, NULL, NULL, NULL, NULL));
        FAILS(EINVAL, syscall(SYS_clone, CLONE_THREAD | SIGCHLD, NULL, NULL, NULL, NULL));
        FAILS(EINVAL, syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, NULL, NULL,
                              NULL, NULL));
}

static void test_limits(void)
{
        struct rlimit data, old, is;

        CHECK(getrlimit(RLIMIT_DATA, &old) == 0);
        data = (struct rlimit){ 512 * MiB, old.rlim_max };
        CHECK(setrlimit(RLIMIT_DATA, &data) == 0);
        pid_t child = start_child();
        if (!child) {
                CHECK(getrlimit(RLIMIT_DATA, &is) == 0 && is.rlim_cur == 512 * MiB);
                FAILS(ENOMEM, (long)mmap(NULL, 600 * MiB, RW, ANON, -1, 0));
                _exit(0);
        }
        reap(child, 0);
        CHECK(setrlimit(RLIMIT_DATA, &old) == 0);
}

static volatile unsigned came;
static void on_usr2(int sig) { (void)sig; came++; }

static int64_t now_us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

/* A signal at any moment while a child begins does not keep it from that. */
static void test_storm(void)
{
        struct sigaction sa = { .sa_handler = on_usr2, .sa_flags = SA_RESTART }, old;
        int64_t takes = 0;
        int turns = (int)times(40);

        CHECK(sigaction(SIGUSR2, &sa, &old) == 0);
        for (int i = 0; i < turns; i++) {
                int p[2];
                char c;
                CHECK(pipe(p) == 0);
                int64_t began = now_us();
                pid_t child = start_child();
                if (!child) {
                        CHECK(write(p[1], "", 1) == 1);
                        while (!came)
                                ;
                        _exit(0);
                }
                while (now_us() - began < takes * i / turns)
                        ;
                CHECK(kill(child, SIGUSR2) == 0 && read(p[0], &c, 1) == 1);
                if (i == 0)
                        takes = now_us() - began;
                reap(child, 0);
                close(p[0]), close(p[1]);
        }
        CHECK(sigaction(SIGUSR2, &old, NULL) == 0);
}

/* As tar and grep -r do in /proc. */
static void look_into_files_of(pid_t pid)
{
        char path[sizeof("/proc/-2147483648/fd")];

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        DIR *d = opendir(path);
        CHECK(d);
        for (struct dirent *e; (e = readdir(d));) {
                int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
                if (fd >= 0)
                        close(fd);
        }
        closedir(d);
}

static void turn_ends(int to) { CHECK(write(to, "", 1) == 1); }
static void turn_begins(int from)
{
        char c;
        CHECK(read(from, &c, 1) == 1);
}

/* A child, then its parent, closes files that the other has open.  When that cost a process of
 * vmrun the lock by which it counts as alive, the other was given its pages. */
static void test_looks(void)
{
        const uint64_t pages = 6 * MiB / PG;
        char *p = map_pages(pages, RW, MAP_PRIVATE);
        int down[2], up[2];

        CHECK(pipe(down) == 0 && pipe(up) == 0);
        fill(p, 0, pages, 1);
        pid_t child = start_child();
        close(child ? up[1] : up[0]);   /* so that the end of one ends the other's wait */
        close(child ? down[0] : down[1]);
        if (!child) {
                fill(p, 0, pages, 2);
                look_into_files_of(getppid());
                turn_ends(up[1]);
                turn_begins(down[0]);
                verify("the child's", p, 0, pages, 2);
                fill(p, 0, pages, 4);
                reap(start_child() ?: (_exit(0), 0), 0);
                turn_ends(up[1]);
                turn_begins(down[0]);
                verify("the child's, later", p, 0, pages, 4);
                _exit(0);
        }
        turn_begins(up[0]);
        reap(start_child() ?: (_exit(0), 0), 0);        /* at a fork the dead are buried */
        fill(p, 0, pages, 3);
        look_into_files_of(child);
        turn_ends(down[1]);
        turn_begins(up[0]);
        verify("the parent's", p, 0, pages, 3);
        fill(p, 0, pages, 5);
        turn_ends(down[1]);
        reap(child, 0);
        verify("the parent's, later", p, 0, pages, 5);
        close(down[1]), close(up[0]);
        CHECK(munmap(p, pages * PG) == 0);
}

void process_tests(void)
{
        static const struct { const char *name; void (*run)(void);
        } tests[] = {
                { "ids", test_ids },         { "ends", test_ends },
                { "orphans", test_orphans }, { "pipes", test_pipes },
                { "signals", test_signals }, { "registers", test_registers },
                { "limits", test_limits },   { "clone", test_clone },
                { "storm", test_storm },     { "looks", test_looks },
        };
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                tests[i].run();
                printf("%s: ok\n", tests[i].name);
                fflush(stdout);
        }
}
