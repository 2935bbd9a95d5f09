/*
 * A walk over the slots of remote nodes that this process owns or shares, and the rate at which the
 * walk may go: for repair.c and scrub.c.  By the I/O side.
 */
#ifndef VMRUN_FAR_WALK_H
#define VMRUN_FAR_WALK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WALK_SCAN  1024                 /* slots to look at in one step: some 50 us */
#define WALK_LATER (~0ull)              /* the step is over */
#define WALK_END   (~1ull)

/* The next slot from *at on that this process owns, or that some processes share.  Moves *at behind
 * the slot, and lowers *left by the slots that it looked at; WALK_LATER: *left is 0. */
uint64_t walk_next(uint64_t *at, unsigned *left);

/* A rate that several processes may share: the time until which the pages that they have moved take
 * at that rate, in ns of the clock of now_ms(); 0 at first.  No other memory depends on it, so all
 * accesses are relaxed.  If a process dies, nothing is to be put right. */
typedef _Atomic int64_t rate_t;
/* May `pages` more pages be moved?  The caller then calls rate_take() for each.  Between the two
 * calls other processes may take some, so each process may exceed the rate by a page, for which all
 * wait then.  most: bytes a second; 0: no limit.  If the rate saves up less than `pages`, it allows
 * them once all that it can save is there. */
bool rate_allows(const rate_t *until, uint64_t most, int64_t now_ms, unsigned pages);
void rate_take(rate_t *until, uint64_t most, int64_t now_ms);

#endif
