/*
 * Bringing pages in ahead.
 */
#ifndef VMRUN_PREFETCH_H
#define VMRUN_PREFETCH_H

#include "base/kern.h"
#include "pager/frame.h"
#include "pager/lookahead.h"

/* After a fault at addr, with its own read under way, if it needs one: asks for the pages that the
 * policy expects next.  Takes only frames that demand does not need, and waits for none; but with
 * one CPU it may let the cleaner run.  No fault is published. */
void prefetch(uint64_t addr, enum lookahead_cause cause);

/* Does the setting say that kern asks for pages that a page points to? */
static inline bool prefetch_follows(void)
{
        return atomic_load_explicit(&control.prefetch_policy, memory_order_relaxed) ==
               LOOKAHEAD_POINTERS;
}

/* The page that the program touched at addr has come, or is a marker, in frame n, whose content may
 * be another page's by now: a hint.  Asks for far pages that it points to. */
void prefetch_pointed(uint64_t addr, frame_t n);

/* Pages of a range whose reads are asked for before the first of them is waited for. */
#define RANGE_AHEAD (64 * PAGE_SIZE)

/* Asks for the pages of [start, end) that are far, as far as there are frames: a caller that needs
 * them all then waits once.  mark: the first use of the first of them is to be a fault.  Returns
 * how many were asked for. */
uint32_t prefetch_range(uint64_t start, uint64_t end, bool mark);

/* prefetch_range(), and c counts all pages of the range that are then on their way, no matter which
 * vCPU asked for them.  OUT *counted: their number is added. */
struct counted;
uint32_t prefetch_counted(uint64_t start, uint64_t end, bool mark, const struct counted *c,
                          uint32_t *counted);

/* The program is about to use count pages from the one at addr on, in steps of stride pages (not
 * 0).  Returns how many were asked for at once. */
uint32_t prefetch_stream(uint64_t addr, int64_t stride, uint64_t count);

#endif
