/*
 * Signals that end a program by their default action: the status that its parent sees, in whatever
 * state the signal finds it, and other fates of such signals: blocked, waited for, ignored,
 * handled.
 * For runs with --stats, where vmrun has a hand in it, beside native ones.
 *
 * usage: t_ends            a line a case
 *        t_ends show       the dispositions that a program begins with
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include "t_child.h"

static int told;                        /* a child writes here when it is ready */

static void ready(void) { CHECK(write(told, "", 1) == 1); }

static void wait_for_ever(void)
{
        for (;;)
                pause();
}

static void only(int how, int sig)
{
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, sig);
        CHECK(sigprocmask(how, &set, NULL) == 0);
}

static void until_pending(int sig)
{
        sigset_t set;
        do
                sigpending(&set);
        while (!sigismember(&set, sig));
}

/* ---- states that a signal finds a program in ---- */

static void spin(void)
{
        ready();
        for (volatile long i = 0;; i++)
                ;
}

static void in_sleep(void)
{
        const struct timespec long_time = { .tv_sec = 1000 };
        ready();
        nanosleep(&long_time, NULL);
}

static void in_read(void)
{
        int p[2];
        char c;
        CHECK(pipe(p) == 0);
        ready();
        CHECK(read(p[0], &c, 1) == 1);
}

static void in_faults(void)
{
        uint64_t pages = 2 * MiB / PG;
        char *p = map_pages(pages, RW, MAP_PRIVATE);
        ready();
        for (uint64_t turn = 1;; turn++)
                fill(p, 0, pages, turn);
}

static void *thread_sleeps(void *arg)
{
        wait_for_ever();
        return arg;
}

static void *thread_spins(void *arg)
{
        for (volatile long i = 0;; i++)
                ;
        return arg;
}

/* The main thread is in a futex, others sleep and spin. */
static void threads(void)
{
        pthread_t t;
        CHECK(pthread_create(&t, NULL, thread_sleeps, NULL) == 0);
        CHECK(pthread_create(&t, NULL, thread_spins, NULL) == 0);
        ready();
        pthread_join(t, NULL);
}

static void leader_gone(void)
{
        pthread_t t;
        CHECK(pthread_create(&t, NULL, thread_spins, NULL) == 0);
        ready();
        pthread_exit(NULL);
}

static void in_sigsuspend(void)
{
        sigset_t none;
        sigemptyset(&none);
        only(SIG_BLOCK, SIGTERM);
        ready();
        sigsuspend(&none);
}

static void unblocked_later(void)
{
        only(SIG_BLOCK, SIGTERM);
        ready();
        until_pending(SIGTERM);
        only(SIG_UNBLOCK, SIGTERM);
        _exit(1);
}

static void in_sigwait(void)
{
        sigset_t set;
        int sig;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        only(SIG_BLOCK, SIGTERM);
        ready();
        CHECK(sigwait(&set, &sig) == 0);
        _exit(100 + sig);
}

static void in_signalfd(void)
{
        struct signalfd_siginfo info;
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        only(SIG_BLOCK, SIGTERM);
        int fd = signalfd(-1, &set, 0);
        ready();
        CHECK(read(fd, &info, sizeof(info)) == sizeof(info));
        _exit(120 + (int)info.ssi_signo);
}

static void ignored(void)
{
        signal(SIGTERM, SIG_IGN);
        ready();
        sleep(1);
        _exit(5);
}

static volatile sig_atomic_t handled;
static void handler(int sig) { handled = sig; }

/* The default action is back, by hand and by SA_RESETHAND. */
static void handled_before(void)
{
        signal(SIGTERM, handler);
        raise(SIGTERM);
        CHECK(handled == SIGTERM);
        signal(SIGTERM, SIG_DFL);
        ready();
        wait_for_ever();
}

static void handled_once(void)
{
        struct sigaction sa = { .sa_handler = handler, .sa_flags = (int)SA_RESETHAND };
        sigaction(SIGTERM, &sa, NULL);
        raise(SIGTERM);
        CHECK(handled == SIGTERM);
        ready();
        wait_for_ever();
}

static void by_alarm(void)
{
        ready();
        alarm(1);
        spin();
}

static void by_pipe(void)
{
        int p[2];
        CHECK(pipe(p) == 0 && close(p[0]) == 0);
        ready();
        CHECK(write(p[1], "", 1) == 1);
}

static void by_abort(void)
{
        ready();
        abort();
}

static void by_fault(void)
{
        static int *volatile nowhere;
        ready();
        *nowhere = 1;
}

/* The child of a vfork dies, its parent continues. */
static void in_vfork(void)
{
        int status;
        ready();
        pid_t pid = vfork();
        if (pid == 0) {
                kill(getpid(), SIGINT);
                _exit(1);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        _exit(WIFSIGNALED(status) ? 40 + WTERMSIG(status) : 1);
}

static void in_fork(void)
{
        int status;
        pid_t pid = start_child();
        if (pid == 0)
                wait_for_ever();
        kill(pid, SIGHUP);
        CHECK(waitpid(pid, &status, 0) == pid);
        ready();
        _exit(WIFSIGNALED(status) ? 60 + WTERMSIG(status) : 1);
}

/* ---- the cases ---- */

static const struct { const char *name; void (*state)(void); int sig; } cases[] = {
        { "spins", spin, SIGTERM }, { "spins", spin, SIGINT }, { "spins", spin, SIGHUP },
        { "spins", spin, SIGQUIT }, { "spins", spin, SIGUSR1 }, { "spins", spin, SIGALRM },
        { "spins", spin, SIGVTALRM }, { "spins", spin, SIGIO }, { "spins", spin, SIGXCPU },
        { "spins", spin, SIGSEGV }, { "spins", spin, 32 }, { "spins", spin, 33 },
        { "spins", spin, SIGKILL }, { "sleeps", in_sleep, SIGTERM },
        { "reads", in_read, SIGINT }, { "faults", in_faults, SIGTERM },
        { "has threads", threads, SIGTERM }, { "has no leader", leader_gone, SIGTERM },
        { "in sigsuspend", in_sigsuspend, SIGTERM }, { "unblocks it", unblocked_later, SIGTERM },
        { "in sigwait", in_sigwait, SIGTERM }, { "reads a signalfd", in_signalfd, SIGTERM },
        { "ignores it", ignored, SIGTERM }, { "handled it before", handled_before, SIGTERM },
        { "handles it once", handled_once, SIGTERM }, { "alarm", by_alarm, 0 },
        { "broken pipe", by_pipe, 0 }, { "abort", by_abort, 0 }, { "null pointer", by_fault, 0 },
        { "child of vfork", in_vfork, 0 }, { "child of fork", in_fork, 0 },
};

/* A child in that state, which is ready. */
static pid_t child_in(void (*state)(void))
{
        int p[2];
        char c;

        CHECK(pipe(p) == 0);
        pid_t pid = start_child();
        if (pid == 0) {
                told = p[1];
                state();
                _exit(99);
        }
        close(p[1]);
        CHECK(read(p[0], &c, 1) == 1);
        close(p[0]);
        return pid;
}

static void say_end(const char *name, int sig, pid_t pid)
{
        int status;

        CHECK(waitpid(pid, &status, 0) == pid);
        if (WIFSIGNALED(status))
                printf("%s, sent %d: signal %d%s\n", name, sig, WTERMSIG(status),
                       WCOREDUMP(status) ? ", core" : "");
        else
                printf("%s, sent %d: status %d\n", name, sig, WEXITSTATUS(status));
}

/* A stopped program dies when it continues. */
static void stopped(void)
{
        const struct timespec moment = { .tv_nsec = 200000000 };
        pid_t pid = child_in(spin);
        int status;

        kill(pid, SIGSTOP);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        kill(pid, SIGTERM);
        nanosleep(&moment, NULL);
        printf("stopped: %s\n", waitpid(pid, &status, WNOHANG) == 0 ? "lives" : "is gone");
        kill(pid, SIGCONT);
        say_end("stopped", SIGTERM, pid);
}

static void one_thread(void)
{
        const pid_t pid = child_in(threads);
        CHECK(syscall(SYS_tgkill, pid, pid, SIGINT) == 0);
        say_end("one thread of many", SIGINT, pid);
}

/* As timeout(1) and terminals send them. */
static void twice(void)
{
        const pid_t pid = child_in(spin);
        for (int i = 0; i < 20; i++)
                kill(pid, SIGTERM);
        say_end("many at a time", SIGTERM, pid);
}

/* The program's own view: its dispositions, and /proc. */
static int show(void)
{
        struct { unsigned long handler, flags, restorer, mask; } k;
        char line[256];

        for (int sig = 1; sig <= 64; sig++)
                if (syscall(SYS_rt_sigaction, sig, NULL, &k, 8) || k.handler || k.flags || k.mask)
                        printf("%d: handler %lu flags %#lx mask %#lx\n", sig,
                               k.handler > 1 ? 2 : k.handler, k.flags, k.mask);
        FILE *f = fopen("/proc/self/status", "re");
        CHECK(f != NULL);
        while (fgets(line, sizeof(line), f))
                if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigIgn", 6) == 0 ||
                    strncmp(line, "SigCgt", 6) == 0)
                        fputs(line, stdout);
        fclose(f);
        return 0;
}

static void show_in_next(const char *self)
{
        int status;
        pid_t pid = start_child();
        if (pid == 0) {
                signal(SIGINT, SIG_IGN);
                signal(SIGUSR1, handler);
                show();
                fflush(stdout);
                execl(self, self, "show", NULL);
                _exit(127);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
        if (argc > 1)
                return show();
        /* The cases' own, whatever the parent had set.  libc refuses 32 and 33. */
        const struct { unsigned long handler, flags, restorer, mask; } none = { 0 };
        for (int sig = 1; sig <= 33; sig++)
                syscall(SYS_rt_sigaction, sig, &none, NULL, sizeof(none.mask));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                pid_t pid = child_in(cases[i].state);
                if (cases[i].sig)
                        kill(pid, cases[i].sig);
                say_end(cases[i].name, cases[i].sig, pid);
        }
        const pid_t pid = child_in(spin);
        kill(pid, SIGRTMIN + 3);
        say_end("spins", SIGRTMIN + 3, pid);
        stopped();
        one_thread();
        twice();
        show_in_next(argv[0]);
        return 0;
}
