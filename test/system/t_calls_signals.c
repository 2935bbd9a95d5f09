/*
 * t_calls_signals [LEAST LAST [defaults]]
 *
 * Each of the 64 signals, or those from LEAST to LAST: its default action, on a program that
 * computes, sleeps, or has it blocked.  Then, without `defaults`: handlers, masks, queues.  vmrun
 * uses one of the signals too, which must not show.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include "t_sys.h"

static pid_t start_child(void)
{
        fflush(stdout);
        return fork();
}

static void how(const char *what, int sig, int status)
{
        printf("%s, signal %d: ", what, sig);
        if (WIFSTOPPED(status))
                printf("stopped by %d\n", WSTOPSIG(status));
        else if (WIFSIGNALED(status))
                printf("ended by %d\n", WTERMSIG(status));
        else
                printf("exit status %d\n", WEXITSTATUS(status));
}

static int wait_for(pid_t pid)
{
        int status = -1;

        CHECK(waitpid(pid, &status, WUNTRACED) == pid);
        if (WIFSTOPPED(status)) {
                kill(pid, SIGKILL);
                CHECK(waitpid(pid, NULL, 0) == pid);
        }
        return status & ~0x80;          /* whether there is a core file is a matter of limits */
}

/* In a system call, computing, or sent by itself. */
static void by_default(int sig)
{
        int ready[2], hold[2];
        char c;

        for (int way = 0; way < 3; way++) {
                if (way == 1 && sig != SIGTERM && sig != SIGSTKFLT && sig != SIGCONT && sig != 64)
                        continue;
                static const char *const names[] = { "asleep", "computing", "by itself" };
                CHECK(pipe(ready) == 0 && pipe(hold) == 0);
                pid_t pid = start_child();
                if (!pid) {
                        close(hold[1]);
                        if (way == 2)
                                _exit(kill(getpid(), sig) ? 1 : 43);
                        CHECK(write(ready[1], "", 1) == 1);
                        for (volatile unsigned n = 0; way == 1 && n < 300000000; n++)
                                ;
                        _exit(read(hold[0], &c, 1) == 0 ? 42 : 1);
                }
                close(hold[0]);
                CHECK(way == 2 || read(ready[0], &c, 1) == 1);
                if (way == 0)
                        usleep(2000);
                if (way < 2)
                        CHECK(kill(pid, sig) == 0);
                bool goes_on = sig == SIGCHLD || sig == SIGURG || sig == SIGWINCH || sig == SIGCONT;
                if (way == 1 && goes_on)
                        kill(pid, SIGKILL);     /* it has long to compute */
                /* A child that is neither ended nor stopped continues, as does an orphaned process
                 * group at SIGTSTP. */
                close(hold[1]);
                how(names[way], sig, wait_for(pid));
                close(ready[0]), close(ready[1]);
        }
}

static volatile sig_atomic_t came, code, value;

static void handler(int sig, siginfo_t *info, void *context)
{
        (void)context;
        came = sig;
        code = info->si_code;
        value = info->si_value.sival_int;
}

static _Atomic int stop;

/* Sends again and again: the first signal may come before the thread that waits for it sleeps. */
static void *sender(void *arg)
{
        int sig = (int)(intptr_t)arg;

        do {
                usleep(10000);
                kill(getpid(), sig);
        } while (!stop);
        return NULL;
}

static pthread_t start_sender(int sig)
{
        pthread_t thread;

        stop = 0;
        came = 0;
        CHECK(pthread_create(&thread, NULL, sender, (void *)(intptr_t)sig) == 0);
        return thread;
}

static void stop_sender(pthread_t thread)
{
        stop = 1;
        pthread_join(thread, NULL);
}

/* In an emulated machine Linux itself ends such a wait by EINTR, once in some hundred; more often
 * means that vmrun interrupts it. */
enum { INTERRUPTED_MOST = 3 };
static int interrupted;

static int wait_for_signal(const sigset_t *set, siginfo_t *info, const struct timespec *limit)
{
        int sig;

        while ((sig = sigtimedwait(set, info, limit)) < 0 && errno == EINTR)
                CHECK(++interrupted <= INTERRUPTED_MOST);
        return sig;
}

static void with_handler(int sig)
{
        struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO }, old;
        sigset_t set, was, pending;
        siginfo_t info;
        struct timespec now = { 0 }, soon = { 5, 0 };
        int p[2];
        char c;

        printf("signal %d:\n", sig);
        sigemptyset(&set);
        sigaddset(&set, sig);
        CHECK(sigaction(sig, &sa, &old) == 0 && old.sa_handler == SIG_DFL);
        came = 0;
        T(raise(sig));
        CHECK(came == sig && code == SI_TKILL);
        came = 0;
        T(sigqueue(getpid(), sig, (union sigval){ .sival_int = 77 }));
        CHECK(came == sig && code == SI_QUEUE && value == 77);
        /* Blocked: it waits, can be seen, taken, read. */
        CHECK(sigprocmask(SIG_BLOCK, &set, &was) == 0 && !sigismember(&was, sig));
        came = 0;
        T(kill(getpid(), sig));
        CHECK(!came && sigpending(&pending) == 0 && sigismember(&pending, sig));
        for (volatile int n = 0; n < 1000000; n++)
                ;
        CHECK(!came && sigpending(&pending) == 0 && sigismember(&pending, sig));
        CHECK(sigprocmask(SIG_BLOCK, NULL, &was) == 0 && sigismember(&was, sig));
        CHECK(sigtimedwait(&set, &info, &now) == sig && info.si_code == SI_USER &&
              info.si_pid == getpid());
        FAILS(EAGAIN, sigtimedwait(&set, &info, &now));
        int fd = signalfd(-1, &set, SFD_NONBLOCK);
        struct signalfd_siginfo si;
        FAILS(EAGAIN, read(fd, &si, sizeof(si)));
        T(sigqueue(getpid(), sig, (union sigval){ .sival_int = 78 }));
        T(poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 0));
        CHECK(read(fd, &si, sizeof(si)) == sizeof(si) && si.ssi_signo == (uint32_t)sig &&
              si.ssi_int == 78);
        close(fd);
        CHECK(!came);
        T(kill(getpid(), sig));
        sigset_t open;
        sigprocmask(SIG_BLOCK, NULL, &open);
        sigdelset(&open, sig);
        FAILS(EINTR, sigsuspend(&open));
        CHECK(came == sig);
        came = 0;
        T(kill(getpid(), sig));
        CHECK(!came && sigprocmask(SIG_UNBLOCK, &set, NULL) == 0 && came == sig);
        /* A thread sleeps, waits for the signal, computes; the other thread has it blocked. */
        CHECK(pipe(p) == 0);
        sigprocmask(SIG_BLOCK, &set, NULL);
        pthread_t thread = start_sender(sig);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        FAILS(EINTR, read(p[0], &c, 1));
        CHECK(came == sig);
        stop_sender(thread);
        sigprocmask(SIG_BLOCK, &set, NULL);
        thread = start_sender(sig);
        CHECK(wait_for_signal(&set, &info, &soon) == sig && !came);
        stop_sender(thread);
        thread = start_sender(sig);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        while (!came)
                ;
        stop_sender(thread);
        /* Ignored: gone, also a pending signal. */
        sigprocmask(SIG_BLOCK, &set, NULL);
        T(kill(getpid(), sig));
        signal(sig, SIG_IGN);
        CHECK(sigpending(&pending) == 0 && !sigismember(&pending, sig));
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        T(kill(getpid(), sig));
        CHECK(write(p[1], "", 1) == 1 && read(p[0], &c, 1) == 1);
        signal(sig, SIG_DFL);
        close(p[0]), close(p[1]);
}

/* All threads but one compute and block the signal; the one waits for it. */
static void *compute(void *arg)
{
        for (volatile unsigned n = 0; !stop; n++)
                ;
        return arg;
}

static void waiting_thread(int sig)
{
        struct timespec soon = { 5, 0 };
        pthread_t thread[2];
        siginfo_t info;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, sig);
        sigprocmask(SIG_BLOCK, &set, NULL);
        stop = 0;
        for (int i = 0; i < 2; i++)
                CHECK(pthread_create(&thread[i], NULL, compute, NULL) == 0);
        int got = 0;
        for (int i = 0; i < 8; i++) {
                pid_t pid = start_child();
                if (!pid) {
                        usleep(1000);
                        _exit(kill(getppid(), sig) ? 1 : 0);
                }
                got += wait_for_signal(&set, &info, &soon) == sig;
                CHECK(waitpid(pid, NULL, 0) == pid);
        }
        printf("waited for signal %d: %d of 8\n", sig, got);
        stop = 1;
        for (int i = 0; i < 2; i++)
                pthread_join(thread[i], NULL);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Many signals while pages are unmapped, which is when vmrun sends its own. */
static volatile int storms;
static void count(int sig) { (void)sig; storms++; }

static void storm(int sig)
{
        pthread_t thread[2];

        signal(sig, count);
        stop = 0;
        for (int i = 0; i < 2; i++)
                CHECK(pthread_create(&thread[i], NULL, compute, NULL) == 0);
        for (int i = 0; i < 100; i++) {
                char *m =
                        mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                *m = 1;
                munmap(m, PG);
                if (i % 4 == 0)
                        CHECK(pthread_kill(pthread_self(), sig) == 0);
        }
        printf("handled %d of 25\n", storms);
        for (int i = 0; i < 100; i++)
                CHECK(pthread_kill(thread[i % 2], sig) == 0);
        stop = 1;
        for (int i = 0; i < 2; i++)
                pthread_join(thread[i], NULL);
        signal(sig, SIG_DFL);
}

/* Ignored signals stay ignored over an execve, and pending ones pending. */
static void over_exec(const char *self)
{
        sigset_t set;

        for (int way = 0; way < 2; way++) {
                pid_t pid = start_child();
                if (!pid) {
                        sigemptyset(&set);
                        sigaddset(&set, SIGSTKFLT);
                        if (way == 0) {
                                signal(SIGSTKFLT, SIG_IGN);
                        } else {
                                sigprocmask(SIG_BLOCK, &set, NULL);
                                kill(getpid(), SIGSTKFLT);
                        }
                        execl(self, self, "after", NULL);
                        _exit(1);
                }
                how("after execve", SIGSTKFLT, wait_for(pid));
        }
}

static int after_exec(void)
{
        struct sigaction sa;
        sigset_t set, pending;

        sigaction(SIGSTKFLT, NULL, &sa);
        sigpending(&pending);
        sigprocmask(SIG_BLOCK, NULL, &set);
        printf("ignored %d, pending %d, blocked %d\n", sa.sa_handler == SIG_IGN,
               sigismember(&pending, SIGSTKFLT), sigismember(&set, SIGSTKFLT));
        fflush(stdout);
        if (sa.sa_handler == SIG_IGN)
                kill(getpid(), SIGSTKFLT);
        else
                sigprocmask(SIG_UNBLOCK, &set, NULL);
        return 44;
}

int main(int argc, char **argv)
{
        int least = argc > 2 ? atoi(argv[1]) : 1, last = argc > 2 ? atoi(argv[2]) : 64;

        setvbuf(stdout, NULL, _IOLBF, 0);
        if (argc == 2)
                return after_exec();
        memory_init();
        for (int sig = 1; sig <= 64; sig++)     /* the parent may have ignored some */
                if (sig != 32 && sig != 33)
                        signal(sig, SIG_DFL);
        for (int sig = least; sig <= last; sig++)
                if (sig != 32 && sig != 33)     /* the C library's */
                        by_default(sig);
        if (argc == 4)
                return failures ? 1 : 0;
        static const int handled[] = { SIGUSR1, SIGSTKFLT, SIGIO, SIGPWR, 34, 64 };
        for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
                with_handler(handled[i]);
        waiting_thread(SIGSTKFLT);
        waiting_thread(SIGUSR1);
        storm(SIGSTKFLT);
        over_exec(argv[0]);
        printf("failures %d\n", failures);
        return failures ? 1 : 0;
}
