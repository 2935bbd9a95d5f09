/*
 * A walk over the slots of remote nodes that this process holds, and the rate at which it may go:
 * for repair.c and scrub.c.  By the I/O side.
 */
#ifndef VMRUN_FAR_WALK_H
#define VMRUN_FAR_WALK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WALK_SCAN  1024                 /* slots to look at in one step: some 50 us */
#define WALK_LATER (~0ull)              /* it has looked at as many as it was to */
#define WALK_END   (~1ull)

/* The next slot from *at on that this process may hold: it owns it, or somebody shares it.  *at is
 * moved behind it, *left is lowered by the slots that were looked at. */
uint64_t walk_next(uint64_t *at, unsigned *left);

/* A rate that several processes may share: until when what they have moved takes, in ns of the
 * clock of now_ms(); 0 at first.  No other memory depends on it, so all accesses are relaxed.  A
 * process that dies leaves nothing to be put right. */
typedef _Atomic int64_t rate_t;
/* May so many pages more be moved?  Each is then told by rate_take(); between the two others may
 * take some, so each process may exceed the rate by a page, which the next ones wait for.  most:
 * bytes a second; 0: no limit.  Of a rate too low for so many, as many as it saves up. */
bool rate_allows(const rate_t *until, uint64_t most, int64_t now_ms, unsigned pages);
void rate_take(rate_t *until, uint64_t most, int64_t now_ms);

#endif
