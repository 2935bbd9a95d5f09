/*
 * A watch over a thread that has taken a signal for the program while its vCPU was in kern.
 *
 * Normally kern comes to EXIT_EVENT within microseconds, or when a page has come from a node. Where
 * the program has written over kern's memory, or changed the CPU's tables, it may never come; and
 * while the signal waits, all others are blocked.  So a timer of the host interrupts KVM_RUN by the
 * kick signal, and vcpu.c looks what is wrong.
 */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/options.h"
#include "vm/thread.h"
#include "vm/vm.h"
#include "vm/watch.h"

#define LIMIT_MS 60000

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t watch_limit_ms(void) { return LIMIT_MS + opt.timeout_ms; }

void watch_begin(struct thread *t)
{
        struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID,
                             .sigev_signo = KICK_SIGNAL,
                             .sigev_value.sival_ptr = &t->watch};
        const struct itimerspec every = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};

        if (t->watch.since)
                return;
        e._sigev_un._tid = t->tid;
        t->watch.since = now_ms();
        /* Without a timer (RLIMIT_SIGPENDING) the next signal or kick is when the guest is looked
         * at. */
        t->watch.has_timer = syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &t->watch.timer) == 0;
        if (t->watch.has_timer)
                syscall(SYS_timer_settime, t->watch.timer, 0, &every, NULL);
}

bool watch_is_over(const struct thread *t) { return now_ms() - t->watch.since > watch_limit_ms(); }

void watch_end(struct thread *t)
{
        if (t->watch.since && t->watch.has_timer)
                syscall(SYS_timer_delete, t->watch.timer);
        t->watch.since = 0;
        t->watch.exits = 0;
}
