/*
 * For t_threads: checks, threads, raw futexes, and waits that end.
 */
#ifndef T_THREADS_H
#define T_THREADS_H

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ll          /* in ns */
#define PATIENCE (20000 * MS) /* for an event that ought to be near, on a busy machine */

struct test { const char *group, *name; void (*run)(void); };
extern const struct test basic_tests[], futex_tests[], lock_tests[], own_tests[], signal_tests[],
        memory_tests[], vfork_tests[];

/* A way to end: t_threads end N. */
void end_in_way(int way);

/* Rounds and waits in per cent: 100, or more for a long run and less for a short one. */
extern int effort;
static inline int times(int n) { return n * effort / 100; }

/* A failed check is printed and counted; the test continues. */
extern _Atomic int failures;
void check_failed(const char *file, int line, const char *what);
#ifndef CHECK                           /* t_memory.h has a CHECK that ends the program */
#define CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond))
#endif

pthread_t start(void *(*f)(void *), void *arg);
void *finish(pthread_t id);

int64_t now_ns(clockid_t clock);
static inline void sleep_ms(int ms)
{
        nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * MS }, NULL);
}
static inline struct timespec ms_from_now(clockid_t clock, int ms)
{
        int64_t t = now_ns(clock) + ms * MS;
        return (struct timespec){ t / (1000 * MS), t % (1000 * MS) };
}
/* Waits until the condition holds; false after PATIENCE. */
#define BECOMES(cond) ({ int64_t end_ = now_ns(CLOCK_MONOTONIC) + PATIENCE; bool r_;   \
        while (!(r_ = (cond)) && now_ns(CLOCK_MONOTONIC) < end_)        \
                sched_yield();                                          \
        r_; })

static inline pid_t my_tid(void) { return (pid_t)syscall(SYS_gettid); }
/* Waits until that thread sleeps in the kernel, as far as one can tell from outside. */
bool falls_asleep(pid_t tid);

/* The result, or -errno. */
static inline long futex_(_Atomic uint32_t *w, int op, uint32_t val, const void *timeout_or_n,
                          _Atomic uint32_t *w2, uint32_t val3)
{
        long r = syscall(SYS_futex, w, op, val, timeout_or_n, w2, val3);
        return r < 0 ? -errno : r;
}

#endif
