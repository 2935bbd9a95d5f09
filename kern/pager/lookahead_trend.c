/*
 * `trend`: Leap (H. A. Maruf, M. Chowdhury, "Effectively Prefetching Remote Memory with Leap",
 * USENIX ATC 2020, algorithms 1 and 2).
 *
 * The paper leaves these points open; the unit test has figures that they reproduce exactly:
 * - The first access enters no delta.  While the history is short, a majority is one of the deltas
 *   in it.
 * - The delta of a miss is in the history when the trend is sought, and it is sought at each miss,
 *   whether pages will be asked for or not.
 * - A fault without hits before it follows the trend if its delta is the trend that an *earlier*
 *   miss found.
 */
#include "pager/lookahead_policy.h"

static void enter(struct lookahead *h, uint64_t page)
{
        if (h->last1) {
                h->delta[h->ndelta % LOOKAHEAD_HISTORY] = (int64_t)(page + 1 - h->last1);
                if (++h->ndelta == 2 * LOOKAHEAD_HISTORY)
                        h->ndelta = LOOKAHEAD_HISTORY;
        }
        h->last1 = page + 1;
}

static void hit(struct lookahead *h, uint64_t page)
{
        if (h->hits < LOOKAHEAD_MOST)
                h->hits++;
        enter(h, page);
}

/* The delta before the newest i deltas. */
static int64_t delta_at(const struct lookahead *h, uint32_t i)
{
        return h->delta[(h->ndelta - 1 - i) % LOOKAHEAD_HISTORY];
}

/* The delta of more than half of the newest n. */
static bool has_majority(const struct lookahead *h, int64_t d, uint32_t n)
{
        uint32_t same = 0;

        for (uint32_t i = 0; i < n; i++)
                same += delta_at(h, i) == d;
        return 2 * same > n;
}

/* Boyer and Moore's vote over a quarter of the history, then half, then all; the vote is carried on
 * from one part to the next.  0: no delta has the majority. */
static int64_t find_trend(const struct lookahead *h, uint32_t history)
{
        uint32_t have = h->ndelta < history ? h->ndelta : history;
        uint32_t votes = 0, i = 0;
        int64_t d = 0;

        for (uint32_t n = history / 4 ? history / 4 : 1; i < have; n *= 2) {
                for (; i < n && i < have; i++) {
                        if (votes == 0)
                                d = delta_at(h, i);
                        votes += delta_at(h, i) == d ? 1 : -1u;
                }
                if (votes && has_majority(h, d, i))
                        return d;
        }
        return 0;
}

/* h->window is the window of the miss before.  follows: the trend predicts the access. */
static uint32_t window_of(const struct lookahead *h, bool follows, uint32_t most)
{
        uint32_t n = h->hits ? lookahead_pow2(h->hits + 1) : follows;

        if (n < h->window / 2)
                n = h->window / 2;
        return n < most ? n : most;
}

void trend_fault(struct lookahead *h, const struct lookahead_access *a,
                 struct lookahead_batch *batch)
{
        lookahead_hits(h, a, hit);
        if (a->cause != LOOKAHEAD_MISS)
                return;
        enter(h, a->page);
        bool follows = h->trend && h->ndelta && delta_at(h, 0) == h->trend;
        int64_t d = find_trend(h, a->history);
        if (d)
                h->trend = d;
        h->window = window_of(h, follows, a->most);
        h->hits = 0;
        if (h->window == 0 || h->trend == 0)
                return;
        batch->first = a->page + (uint64_t)h->trend;
        batch->stride = h->trend;
        batch->count = h->window;
        lookahead_clip(batch);
        lookahead_note(h, a, batch);
}
