/*
 * See scrub.h: begins a scrub, and has the thread that carries it out where there is no I/O thread.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include "base/options.h"
#include "base/ticker.h"
#include "far/io.h"
#include "far/nodes.h"
#include "far/scrub.h"
#include "far/sequence.h"

#define IDLE_MS 500                     /* after a scrub, until vmctl asks about it */
#define TURNS   100                     /* in one tick, so a fork waits 10 ms for it */

/* --io inline: does the I/O side's work while no vCPU waits for a page. */
static void tick(void);
static struct ticker ticker = { .name = "vmrun-scrub", .ms = 1, .tick = tick, TICKER_INIT };

static void tick(void)
{
        const struct timespec pause = { .tv_nsec = 50000 };

        for (unsigned i = 0; i < TURNS && scrub_runs(); i++) {
                io_keep();
                nanosleep(&pause, NULL);
        }
        ticker.ms = scrub_runs() ? 1 : IDLE_MS;
}

void scrub_hold(void) { ticker_hold(&ticker); }
void scrub_release(void) { ticker_release(&ticker); }
void scrub_rest(void) { ticker_rest(&ticker); }
void scrub_thread_forked(void) { ticker_forked(&ticker); }

void scrub_go_on(void)
{
        if (scrub_runs() && opt.io == IO_INLINE) {
                ticker.ms = 1;
                ticker_start(&ticker);
        }
}

static bool any_remote(void)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->driver->kind == SLAB_REMOTE)
                        return true;
        return false;
}

static int refuse(char why[SCRUB_WHY])
{
        if (scrub_runs()) {
                snprintf(why, SCRUB_WHY, "a scrub is under way: vmctl PID scrub --status shows it, "
                         "--stop ends it");
                return -EBUSY;
        }
        if (!any_remote()) {
                snprintf(why, SCRUB_WHY, "the program has no remote node (rdma, nbd or file), and "
                         "pages of other nodes have no sums");
                return -EINVAL;
        }
        if (!opt.verify) {
                snprintf(why, SCRUB_WHY, "the program was started with --no-verify, so its pages "
                         "have no sums: start it without");
                return -EINVAL;
        }
        return 0;
}

int scrub_start(uint64_t most, char why[SCRUB_WHY])
{
        int err = refuse(why);

        if (err)
                return err;
        ticker_rest(&ticker);           /* it may still sleep for IDLE_MS */
        scrub_begin(most, far_used_pages(), io_is_attached());
        io_wake();
        scrub_go_on();
        return 0;
}

void scrub_stop(void)
{
        scrub_to_stop();
        io_wake();
}

void scrub_look(struct scrub_report *r)
{
        scrub_report(r);
        if (r->state != SCRUB_RUNS)
                ticker_rest(&ticker);
}
