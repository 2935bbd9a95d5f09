/*
 * How many frames are to be cold: stamps, rates and the target of the two hands (clock.c).  Pure
 * arithmetic, for one thread at a time.
 *
 * Time is counted in ticks: at each, an eighth of the cache was evicted since the last one.  The
 * far entry of an evicted page has a stamp, its tick and whether the page WAS hot.  A page that
 * comes back less than LAGS ticks later came back soon.  It was evicted too early, and it is
 * counted by what it was, and by its lag: the ticks that it was away.
 *
 * If of the pages that left cold more come back soon than of those that left hot, more frames are
 * to be cold, so that those stay longer.  If hot pages come back soon, fewer are to be cold.  The
 * target moves slowly, and begins near its upper bound, where the two hands are CLOCK.
 */
#ifndef VMRUN_BALANCE_H
#define VMRUN_BALANCE_H

#include <stdint.h>
#include "abi_stats.h"

/* Numbers of ticks: LAGS to TICKS - 1, then LAGS again.  So 0, the stamp of a page of which nothing
 * is known, lies LAGS ticks back or more; and so does what was evicted before the numbers began
 * anew. */
#define TICKS 1024u
#define TICK_FIRST LAGS

static inline uint32_t tick_next(uint32_t tick)
{
        return tick + 1 == TICKS ? TICK_FIRST : tick + 1;
}

/* The index [0] is of pages that left cold, [1] of those that left hot. */
struct balance {
        uint32_t tick;                  /* that runs now */
        uint32_t target;                /* frames that are to be cold, at least */
        struct returns counted;         /* at the last tick */
        uint32_t gone[2][LAGS];         /* evictions, by tick % LAGS */
        /* Of all ticks until now, the latest four weigh most; times SCALE: how many pages of this
         * lag came back, and how many had left so long before. */
        uint32_t back[2][LAGS], left[2][LAGS];
};

#define BALANCE_WORDS (sizeof(struct balance) / sizeof(uint32_t))

/* nframes: those that the hands choose from. */
void balance_init(struct balance *b, uint32_t nframes);
/* A tick is over.  now: what was counted since the start, modulo 2^32; burst: frames that may be
 * evicted at once. */
void balance_tick(struct balance *b, const struct returns *now, uint32_t nframes, uint32_t burst);

#endif
