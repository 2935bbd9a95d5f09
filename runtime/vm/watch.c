/*
 * A watch over a thread that has taken a signal for the program while its vCPU was in kern.
 *
 * Normally kern makes EXIT_EVENT within microseconds, or when a page has come from a node.  If the
 * program has overwritten kern's memory, or changed the CPU's tables, kern may never get there, and
 * while the signal waits, all others are blocked.  So a host timer interrupts KVM_RUN by the kick
 * signal, and vcpu.c looks for the cause.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi_stats.h"
#include "base/options.h"
#include "vm/thread.h"
#include "vm/vcpu.h"
#include "vm/watch.h"

#define LIMIT_MS 60000
#define EVERY_MS 1000                   /* the timer's */

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t watch_limit_ms(void)
{
        const char *ms = getenv("VMRUN_WATCH_MS");      /* for tests */

        return (ms ? strtoull(ms, NULL, 10) : LIMIT_MS) + opt.timeout_ms;
}

uint64_t watch_work(const struct thread *t)
{
        const volatile struct vcpu_stats *s = vcpu_stats(t->v);
        uint64_t pages = s->counter[CNT_READ_PARTS];

        for (int kind = 0; kind < FAULT_SPURIOUS; kind++)
                pages += s->faults[kind];
        return pages;
}

void watch_begin(struct thread *t)
{
        struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID,
                             .sigev_signo = KICK_SIGNAL,
                             .sigev_value.sival_ptr = &t->watch};
        const struct itimerspec every = {.it_interval.tv_sec = EVERY_MS / 1000,
                                         .it_value.tv_sec = EVERY_MS / 1000};

        if (t->watch.seen_ms)
                return;
        e._sigev_un._tid = t->tid;
        t->watch.seen_ms = now_ms();
        t->watch.waited_ms = 0;
        t->watch.work = watch_work(t);
        /* Without a timer (RLIMIT_SIGPENDING) the guest is checked at the next signal or kick. */
        t->watch.has_timer = syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &t->watch.timer) == 0;
        if (t->watch.has_timer)
                syscall(SYS_timer_settime, t->watch.timer, 0, &every, NULL);
}

/* One second at most counts between two looks: the process may have been stopped or frozen. */
bool watch_is_over(struct thread *t)
{
        uint64_t now = now_ms(), since = now - t->watch.seen_ms, work = watch_work(t);

        t->watch.seen_ms = now;
        if (t->watch.work != work) {
                t->watch.work = work;
                t->watch.waited_ms = 0;
                return false;
        }
        t->watch.waited_ms += since < EVERY_MS ? since : EVERY_MS;
        return t->watch.waited_ms > watch_limit_ms();
}

void watch_end(struct thread *t)
{
        if (t->watch.seen_ms && t->watch.has_timer)
                syscall(SYS_timer_delete, t->watch.timer);
        t->watch.seen_ms = 0;
        t->watch.exits = 0;
}
