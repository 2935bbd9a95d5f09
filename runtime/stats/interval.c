/*
 * --stats-interval: a thread that reports while the program runs.
 *
 * The thread is vmrun's own: it takes no signals, stops no other thread, and reads the counters of
 * other threads.  Where the report is a file, the thread replaces it each time.  Else it writes a
 * line to standard error, which is dropped if its reader has stopped reading (common/line.h).
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "base/ticker.h"
#include "stats/formats.h"
#include "stats/interval.h"
#include "stats/model.h"
#include "stats/report.h"
#include "stats/write.h"

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

static void report(void)
{
        static struct stats before;     /* of the line before */

        pthread_mutex_lock(&stats_lock);
        if (stats_has_file())
                stats_print_report(false);
        else if (!stats_is_over())
                print_line(&before);
        pthread_mutex_unlock(&stats_lock);
}

static struct ticker reporter = { .name = "vmrun-stats", .tick = report, TICKER_INIT };

void stats_interval_start(void)
{
        if (!opt.stats || !opt.stats_interval_ms)
                return;
        reporter.ms = opt.stats_interval_ms;
        int err = ticker_start(&reporter);
        if (err)
                warnx_("--stats-interval: process %d reports at its end only, since it can have no "
                       "other thread: %s", getpid(), strerror(err));
}

void stats_interval_rest(void) { ticker_rest(&reporter); }

/* The thread reports under stats_lock, and uses malloc nowhere else. */
void stats_hold(void)
{
        ticker_hold(&reporter);
        pthread_mutex_lock(&stats_lock);
}

void stats_release(void)
{
        pthread_mutex_unlock(&stats_lock);
        ticker_release(&reporter);
}

void stats_forked(void)
{
        ticker_forked(&reporter);
        pthread_mutex_init(&stats_lock, NULL);
        /* Also after a reset in the parent, whose counts are not this process's. */
        if ((opt.stats || stats_has_base()) && stats_rebase() != 0)
                warnx_("statistics of process %d begin with its parent's: no memory", getpid());
        stats_interval_start();
}
