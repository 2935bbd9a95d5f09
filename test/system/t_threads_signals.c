/*
 * t_threads: signals and threads.
 */
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include "t_threads.h"

static _Atomic int handled, wrong;
static _Atomic pid_t handled_by;
static _Atomic bool stop;

static void note(int sig) { (void)sig; handled_by = my_tid(); handled++; }

static void on(int sig, void (*f)(int), int flags)
{
        struct sigaction sa = { .sa_handler = f, .sa_flags = flags };

        CHECK(sigaction(sig, &sa, NULL) == 0);
        handled = 0;
        handled_by = 0;
}

static sigset_t only(int sig)
{
        sigset_t s;

        sigemptyset(&s);
        sigaddset(&s, sig);
        return s;
}

/* ---- to one thread ---- */

static _Atomic pid_t target;
static int pipe_fd[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void *spins(void *arg)
{
        target = my_tid();
        while (!stop) { }
        return arg;
}

static void *reads(void *arg)
{
        char c;

        (void)arg;
        target = my_tid();
        return (void *)(intptr_t)(read(pipe_fd[0], &c, 1) == -1 ? errno : 0);
}

static void *waits(void *arg)
{
        pthread_mutex_lock(&mutex);
        target = my_tid();
        while (!stop)
                pthread_cond_wait(&cond, &mutex);
        pthread_mutex_unlock(&mutex);
        return arg;
}

static void *polls(void *arg)
{
        struct pollfd p = { .fd = pipe_fd[0], .events = POLLIN };

        (void)arg;
        target = my_tid();
        return (void *)(intptr_t)(poll(&p, 1, -1) == -1 ? errno : 0);
}

static void *naps(void *arg)
{
        const struct timespec long_time = { 1000, 0 };
        struct timespec left = { 0, 0 };

        (void)arg;
        target = my_tid();
        int ret = nanosleep(&long_time, &left) == -1 ? errno : 0;
        CHECK(left.tv_sec > 900);
        return (void *)(intptr_t)ret;
}

static void directed(void)
{
        struct { void *(*f)(void *); int flags; bool sleeps, ends;
        } ways[] = {
                { spins, 0, false, false },        { waits, 0, true, false },
                { reads, 0, true, true },          { reads, SA_RESTART, true, false },
                { polls, SA_RESTART, true, true }, { naps, 0, true, true },
        };

        CHECK(pipe(pipe_fd) == 0);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                on(SIGUSR1, note, ways[i].flags);
                stop = false;
                target = 0;
                pthread_t id = start(ways[i].f, NULL);
                CHECK(BECOMES(target != 0));
                int times = ways[i].ends ? 1 : 20;
                for (int k = 1; k <= times; k++) {
                        if (ways[i].sleeps && k < 4)
                                CHECK(falls_asleep(target));
                        CHECK(pthread_kill(id, SIGUSR1) == 0);
                        CHECK(BECOMES(handled == k));
                        CHECK(handled_by == target);
                }
                pthread_mutex_lock(&mutex);
                stop = true;
                pthread_cond_signal(&cond);
                pthread_mutex_unlock(&mutex);
                if (ways[i].f == reads && !ways[i].ends)
                        CHECK(write(pipe_fd[1], "x", 1) == 1);
                CHECK(finish(id) == (void *)(intptr_t)(ways[i].ends ? EINTR : 0));
        }
        signal(SIGUSR1, SIG_DFL);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
}

/* ---- to the process ---- */

static void to_whom_it_is_open(void)
{
        sigset_t s = only(SIGUSR2);
        pthread_t id;

        on(SIGUSR2, note, SA_RESTART);
        for (int way = 0; way < 2; way++) {             /* the other one spins, or waits */
                stop = false;
                target = 0;
                id = start(way ? waits : spins, NULL);
                CHECK(BECOMES(target != 0));
                pthread_sigmask(SIG_BLOCK, &s, NULL);
                handled = 0;
                for (int k = 1; k <= 10; k++) {
                        CHECK(kill(getpid(), SIGUSR2) == 0);
                        CHECK(BECOMES(handled == k) && handled_by == target);
                }
                pthread_mutex_lock(&mutex);
                stop = true;
                pthread_cond_signal(&cond);
                pthread_mutex_unlock(&mutex);
                finish(id);
                pthread_sigmask(SIG_UNBLOCK, &s, NULL);
        }
        signal(SIGUSR2, SIG_DFL);
}

static void *takes_signals(void *arg)
{
        sigset_t s = only(SIGRTMIN + 2), usr1 = only(SIGUSR1);
        siginfo_t info;
        int64_t sum = 0;

        for (int i = 0; i < 50; i++) {
                CHECK(sigwaitinfo(&s, &info) == SIGRTMIN + 2 && info.si_code == SI_QUEUE &&
                      info.si_pid == getpid());
                sum += info.si_value.sival_int;
        }
        int sig;
        CHECK(sigwait(&usr1, &sig) == 0 && sig == SIGUSR1);
        *(int64_t *)arg = sum;
        return NULL;
}

static void waited_for(void)
{
        sigset_t s = only(SIGRTMIN + 2), old;
        int64_t sum = 0;

        sigaddset(&s, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &s, &old);
        pthread_t id = start(takes_signals, &sum);
        for (int i = 0; i < 50; i++)
                CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = i * i }) == 0);
        kill(getpid(), SIGUSR1);
        finish(id);
        CHECK(sum == 40425);
        struct timespec soon = { 0, 20 * MS };
        CHECK(sigtimedwait(&s, NULL, &soon) == -1 && errno == EAGAIN);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* The mask is inherited, pending signals are not. */
static void *shows_mask(void *arg)
{
        sigset_t s, p;

        pthread_sigmask(SIG_BLOCK, NULL, &s);
        sigpending(&p);
        CHECK(sigismember(&s, SIGUSR1) && !sigismember(&s, SIGUSR2) && !sigismember(&p, SIGUSR1));
        pthread_sigmask(SIG_UNBLOCK, &s, NULL);
        return arg;
}

static void masks(void)
{
        sigset_t s = only(SIGUSR1), p;

        on(SIGUSR1, note, 0);
        pthread_sigmask(SIG_BLOCK, &s, NULL);
        pthread_kill(pthread_self(), SIGUSR1);
        finish(start(shows_mask, NULL));
        CHECK(handled == 0 && sigpending(&p) == 0 && sigismember(&p, SIGUSR1));
        pthread_sigmask(SIG_UNBLOCK, &s, NULL);
        CHECK(handled == 1 && handled_by == my_tid());
        signal(SIGUSR1, SIG_DFL);
}

/* Each on its own alternate stack. */
static __thread char *alt;
static void on_its_stack(int sig)
{
        char here;

        (void)sig;
        wrong += &here < alt || &here >= alt + 65536;
        handled++;
}

static void *has_stack(void *arg)
{
        stack_t ss = { .ss_sp = alt = malloc(65536), .ss_size = 65536 }, old,
                off = { .ss_flags = SS_DISABLE };

        CHECK(sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE));
        CHECK(sigaltstack(&ss, NULL) == 0);
        for (int i = 0; i < 100; i++) {
                pthread_kill(pthread_self(), SIGUSR1);
                if (i % 10 == 0)
                        sched_yield();
        }
        sigaltstack(&off, NULL);
        free(alt);
        return arg;
}

static void stacks(void)
{
        pthread_t id[6];

        on(SIGUSR1, on_its_stack, SA_ONSTACK);
        wrong = 0;
        for (int i = 0; i < 6; i++)
                id[i] = start(has_stack, NULL);
        for (int i = 0; i < 6; i++)
                finish(id[i]);
        CHECK(handled == 600 && wrong == 0);
        signal(SIGUSR1, SIG_DFL);
}

/* ---- many ---- */

static uint64_t work(uint64_t x, int n)
{
        while (n--)
                x = x * 6364136223846793005 + 1442695040888963407;
        return x;
}

static void *works(void *arg)
{
        uint64_t x = (uintptr_t)arg + 1;
        double d = 1;

        while (!stop) {
                uint64_t y = work(x, 2000);
                wrong += y != work(x, 2000);
                x = y;
                double a = d * 1.0000001 + 1e-9, b = d * 1.0000001 + 1e-9;
                wrong += a != b;
                d = a;
        }
        return NULL;
}

/*
 * SIGALRM every @us microseconds, or at ten times a signal's time if that is more: the main
 * thread gets most of them, and has to get on in between.
 */
static void every(long us)
{
        struct itimerval t;

        for (int i = 0; i < 5; i++) {
                int64_t from = now_ns(CLOCK_MONOTONIC);
                raise(SIGALRM);
                int64_t took = 10 * (now_ns(CLOCK_MONOTONIC) - from) / 1000;
                if (i == 0 || took < t.it_interval.tv_usec)
                        t.it_interval =
                                (struct timeval){ .tv_usec = took < 500000 ? took : 500000 };
        }
        if (t.it_interval.tv_usec < us)
                t.it_interval.tv_usec = us;
        t.it_value = t.it_interval;
        setitimer(ITIMER_REAL, &t, NULL);
}
static void no_more(void)
{
        setitimer(ITIMER_REAL, &(struct itimerval){ .it_value.tv_sec = 0 }, NULL);
}

static void timers(void)
{
        pthread_t id[4];

        on(SIGALRM, note, SA_RESTART);
        stop = false;
        wrong = 0;
        for (intptr_t i = 0; i < 4; i++)
                id[i] = start(works, (void *)i);
        every(2000);
        CHECK(BECOMES(handled >= times(50)));
        no_more();
        stop = true;
        for (int i = 0; i < 4; i++)
                finish(id[i]);
        CHECK(wrong == 0);
        signal(SIGALRM, SIG_DFL);
}

#define THREADS 20
#define EACH times(50)
static __thread int got;
static _Atomic uint32_t never;
static void count_rt(int sig) { (void)sig; got++; }

static void *counts(void *arg)
{
        int64_t end = now_ns(CLOCK_MONOTONIC) + (effort + 99) / 100 * 3 * PATIENCE;

        while (*(volatile int *)&got < EACH && now_ns(CLOCK_MONOTONIC) < end)
                if ((intptr_t)arg % 8 == 0)
                        work(1, 1000);
                else
                        futex_(&never, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){ 0, 100 * MS },
                               NULL, 0);
        CHECK(got == EACH);
        return NULL;
}

static void all_arrive(void)
{
        pthread_t id[THREADS];

        on(SIGRTMIN + 3, count_rt, SA_RESTART);
        for (intptr_t i = 0; i < THREADS; i++)
                id[i] = start(counts, (void *)i);
        for (int k = 0; k < EACH; k++)
                for (int i = 0; i < THREADS; i++)
                        while (pthread_kill(id[i], SIGRTMIN + 3) == EAGAIN)
                                sched_yield();          /* the user's limit of pending signals */
        for (int i = 0; i < THREADS; i++)
                finish(id[i]);
        signal(SIGRTMIN + 3, SIG_DFL);
}

static void *faults(void *arg)
{
        enum { PAGES = 12 << 8 };
        uint64_t *p = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
        uint64_t x = (uintptr_t)arg + 1;

        for (uint64_t i = 0; i < PAGES; i++)
                p[i * 512] = i;
        while (!stop) {
                x = work(x, 1);
                uint64_t i = (x >> 33) % PAGES;
                wrong += p[i * 512] % PAGES != i;
                p[i * 512] += PAGES;
        }
        munmap(p, PAGES * 4096);
        return NULL;
}

/* Signals from a timer and from a thread, while others fault. */
static void storm(void)
{
        pthread_t id[4];
        int64_t end = now_ns(CLOCK_MONOTONIC) + times(1000) * MS;

        on(SIGALRM, note, SA_RESTART);
        on(SIGUSR1, note, 0);
        stop = false;
        wrong = 0;
        for (intptr_t i = 0; i < 4; i++)
                id[i] = start(i < 3 ? faults : works, (void *)i);
        every(1000);
        for (int k = 0; now_ns(CLOCK_MONOTONIC) < end ||
                        (handled <= 10 && now_ns(CLOCK_MONOTONIC) < end + PATIENCE);
             k++) {
                pthread_kill(id[k % 4], SIGUSR1);
                if (k % 16 == 0)
                        sleep_ms(1);
        }
        no_more();
        stop = true;
        for (int i = 0; i < 4; i++)
                finish(id[i]);
        CHECK(wrong == 0 && handled > 10);
        signal(SIGALRM, SIG_DFL);
        signal(SIGUSR1, SIG_DFL);
}

/* Threads that come and go while signals come for all. */
static void *short_life(void *arg) { return (void *)(uintptr_t)work((uintptr_t)arg, 100); }

static void births(void)
{
        pthread_t id[4];

        on(SIGALRM, note, SA_RESTART);
        every(1000);
        for (int round = 0; round < times(20); round++) {
                for (intptr_t i = 0; i < 4; i++)
                        id[i] = start(short_life, (void *)i);
                for (int i = 0; i < 4; i++)
                        finish(id[i]);
        }
        no_more();
        signal(SIGALRM, SIG_DFL);
}

/* A signal that is for the process outlives the thread that is about to take it. */
static void *opens_and_ends(void *arg)
{
        sigset_t s = only(SIGRTMIN);

        pthread_sigmask(SIG_UNBLOCK, &s, NULL);
        for (volatile int i = 0; i < 300; i++) { }
        syscall(SYS_exit, 0);           /* not by libc, which would block all signals before */
        return arg;
}

static void *short_lives(void *arg)
{
        while (!stop)
                finish(start(opens_and_ends, NULL));
        return arg;
}

static void outlive(void)
{
        const int n = times(2000);
        sigset_t s = only(SIGRTMIN);

        on(SIGRTMIN, note, 0);
        stop = false;
        CHECK(pthread_sigmask(SIG_BLOCK, &s, NULL) == 0);
        pthread_t id = start(short_lives, NULL);
        for (int i = 0; i < n; i++) {
                while (sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = i }) != 0 &&
                       errno == EAGAIN)
                        sleep_ms(1);
                nanosleep(&(struct timespec){ 0, 100000 }, NULL);
        }
        stop = true;
        finish(id);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &s, NULL) == 0);     /* what is left */
        CHECK(handled == n);
        signal(SIGRTMIN, SIG_DFL);
}

const struct test signal_tests[] = {
        { "signal", "to a thread that computes, waits, reads, sleeps", directed },
        { "signal", "to the one thread that has it open", to_whom_it_is_open },
        { "signal", "waited for, with values", waited_for },
        { "signal", "masks and pending signals", masks },
        { "signal", "alternate stacks", stacks },
        { "signal", "a timer and threads that compute", timers },
        { "signal", "20 threads get all of theirs", all_arrive },
        { "signal", "a storm over page faults", storm },
        { "signal", "births and deaths of threads in between", births },
        { "signal", "for the process, while threads end", outlive },
        { NULL, NULL, NULL }
};
