/*
 * How many background transfers (prefetches, write-backs) the device has at a time while there are
 * demand reads.
 *
 * With a queue pair of its own a demand read does not wait behind other transfers in the queue, but
 * it still waits for the link that all transfers share, or with soft-RoCE for the CPU that does all
 * the work (64 prefetches there delayed a demand read by 5 ms).  So the driver takes as many
 * requests as without this limit, but posts no more than `window` pages of each kind of background
 * at a time.
 *
 * The window follows from the latency of demand reads.  `best` is the latency of an undisturbed
 * demand read.  A sample is the latency of one demand read, measured from the start of the last
 * poll turn that did not see it.  It therefore includes the time this thread spent elsewhere.  A
 * sample of more than twice the best shrinks the window, in proportion, to the pages that would
 * have added one best.  After a few good samples in a row the window grows by one.  So it settles
 * at about the pages that the device moves in the time of one demand read.  They also keep the
 * device busy.  When no demand read has come for long, all background requests may be posted.
 *
 * Times are in ticks of the TSC; nothing here needs to know how long a tick is.
 */
#include "far/rdma/pace.h"

#define TOO_MUCH  2                     /* times the best */
#define GOOD      8                     /* samples in a row before the window grows */
/* the part of the difference by which the best follows undisturbed samples that are slower */
#define FOLLOW    16
/* a window as small as this means that the device does one transfer after the other */
#define SERIAL    2
#define RECENT    16                    /* "for long", in times of the best */

void rdma_pace_turn(struct rdma_pace *p, uint64_t done, uint64_t now)
{
        p->turn[1] = p->turn[0];
        p->turn[0].end = now;
        p->turn[0].done = done;
}

void rdma_pace_slept(struct rdma_pace *p) { p->turn[0].end = p->turn[1].end = 0; }

void rdma_pace_asked(struct rdma_pace *p, uint64_t done, uint64_t now)
{
        bool known = p->turn[1].end;

        p->last = now;
        /* One demand read is measured at a time: others asked for meanwhile would show its latency,
         * too. */
        if (p->asked)
                return;
        /* The previous turn began to poll when the turn before it ended. */
        p->asked = known ? p->turn[1].end : now;
        p->done = known ? p->turn[1].done : done;
}

void rdma_pace_sent(struct rdma_pace *p) { p->owed = false; }

unsigned rdma_pace_room(const struct rdma_pace *p, unsigned posted)
{
        /* A device that does one transfer after the other would do a background transfer before it
         * reports the end of the demand read.  But after each demand read that was waited for, the
         * background has a turn, so that it makes progress under any load. */
        if (p->asked && p->window && p->window <= SERIAL && !p->owed)
                return 0;
        if (!p->window || p->window >= DATA_DEPTH ||
            (p->turn[0].end > p->last && p->turn[0].end - p->last > RECENT * p->best))
                return DATA_DEPTH;
        return posted < p->window ? p->window - posted : 0;
}

/* Only undisturbed samples may raise the best: under a constant load it would otherwise creep up to
 * the latency under that load.  One sample counts for little, because it may include a time in
 * which this thread did not run. */
static void follow(struct rdma_pace *p, uint64_t took, bool disturbed)
{
        if (!p->window) {               /* the first */
                p->window = DATA_DEPTH;
                p->best = took;
        } else if (took < p->best) {
                p->best = took;
        } else if (!disturbed) {
                p->best += (took > 2 * p->best ? p->best : took - p->best) / FOLLOW;
        }
}

/* In the way were all transfers that were not over when the demand read may have been asked for:
 * with soft-RoCE they may be over when ibv_post_send() returns, also those that are posted right
 * behind it, with which a device that does one transfer after the other may begin first. */
void rdma_pace_done(struct rdma_pace *p, uint64_t sent, uint64_t now)
{
        uint64_t took = now - p->asked, in_way = sent - p->done;

        if (!p->asked)
                return;
        p->asked = 0;
        p->owed = true;
        follow(p, took, in_way > 0);
        if (took <= TOO_MUCH * p->best) {
                if (++p->good >= GOOD && p->window < DATA_DEPTH) {
                        p->good = 0;
                        p->window++;
                }
                return;
        }
        p->good = 0;
        if (!in_way)                    /* the background did not cause it */
                return;
        uint64_t fit = in_way * p->best / (took - p->best);
        /* more than were posted at a time may have been in the way, one after the other */
        if (fit >= p->window)
                fit = p->window - 1;
        p->window = fit ? (unsigned)fit : 1;
}
