/*
 * --stats-interval: a thread that reports while the program runs.
 *
 * It is vmrun's own: it takes no signals, stops nobody, and reads what others count.  Where the
 * report replaces a file it does so each time; else a line goes to standard error, which is dropped
 * if nobody reads it (common/line.h).
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "stats/model.h"
#include "stats/report.h"

/* Guarded by `lock`, which is never held while the thread reports. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER;
static bool to_end;

static pthread_t id;
static bool exists;                     /* of the threads that start and end it: one at a time */

/* Rates since the line before.  before: in, out. */
static void print_line(struct stats *before)
{
        struct stats now = { 0 }, since = { 0 };
        char run[32], p50[32], p99[32];

        if (stats_collect(&now) != 0 || stats_copy(&since, &now) != 0) {
                stats_free(&since);
                stats_free(&now);
                return;
        }
        /* else there was a reset, and all of it is new */
        if (stats_value(&now, "elapsed_ns") >= stats_value(before, "elapsed_ns"))
                stats_subtract(&since, before);
        double seconds = (double)stats_value(&since, "elapsed_ns") / 1e9;
        const struct stats_item *fetch = stats_find(&since, "latency_ns.fetch");
        bool has = fetch && !stats_is_empty(fetch);
        warnx_("process %d, after %s: %.0f faults/s, %.0f pages fetched/s%s%s%s%s, %.0f evicted/s, "
               "%.0f written back/s", getpid(), stats_ns_text(stats_value(&now, "elapsed_ns"), run),
               (double)stats_value(&since, "faults.total") / seconds,
               (double)stats_value(&since, "faults.fetch") / seconds,
               has ? " in " : "",
               has ? stats_ns_text(histogram_percentile_ns(fetch->h, 500000), p50) : "",
               has ? " to " : "",
               has ? stats_ns_text(histogram_percentile_ns(fetch->h, 990000), p99) : "",
               (double)stats_value(&since, "evicted") / seconds,
               (double)stats_value(&since, "count.writeback") / seconds);
        stats_free(&since);
        stats_free(before);
        *before = now;
}

/* False: the thread must end. */
static bool wait_until(const struct timespec *next)
{
        pthread_mutex_lock(&lock);
        while (!to_end && pthread_cond_clockwait(&asked, &lock, CLOCK_MONOTONIC, next) == 0)
                ;
        bool go_on = !to_end;
        pthread_mutex_unlock(&lock);
        return go_on;
}

static void *interval_main(void *arg)
{
        struct stats before = { 0 };

        prctl(PR_SET_NAME, "vmrun-stats");
        for (;;) {
                const struct timespec next = deadline_in_ms(opt.stats_interval_ms);
                if (!wait_until(&next))
                        break;
                pthread_mutex_lock(&stats_lock);
                if (stats_has_file())
                        stats_print_report(false);
                else if (!stats_is_over())
                        print_line(&before);
                pthread_mutex_unlock(&stats_lock);
        }
        stats_free(&before);
        return arg;
}

void stats_interval_start(void)
{
        uint64_t all = ~0ull, old;

        if (!opt.stats || !opt.stats_interval_ms || exists)
                return;
        to_end = false;
        /* Signals are for the program: this thread takes none, not even the two that libc would
         * leave open. */
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(all));
        int err = pthread_create(&id, NULL, interval_main, NULL);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
        exists = err == 0;
        if (err)
                warnx_("--stats-interval: process %d reports at its end only, since it can have no "
                       "other thread: %s", getpid(), strerror(err));
}

void stats_interval_rest(void)
{
        if (!exists)
                return;
        pthread_mutex_lock(&lock);
        to_end = true;
        pthread_cond_signal(&asked);
        pthread_mutex_unlock(&lock);
        pthread_join(id, NULL);
        exists = false;
}

/* The thread reports under stats_lock, and uses malloc nowhere else. */
void stats_hold(void)
{
        pthread_mutex_lock(&stats_lock);
        pthread_mutex_lock(&lock);
}

void stats_release(void)
{
        pthread_mutex_unlock(&lock);
        pthread_mutex_unlock(&stats_lock);
}

void stats_forked(void)
{
        exists = false;
        pthread_mutex_init(&lock, NULL);
        pthread_mutex_init(&stats_lock, NULL);
        pthread_cond_init(&asked, NULL);
        /* Also after a reset in the parent, whose counts are not this process's. */
        if ((opt.stats || stats_has_base()) && stats_rebase() != 0)
                warnx_("statistics of process %d begin with its parent's: no memory", getpid());
        stats_interval_start();
}
