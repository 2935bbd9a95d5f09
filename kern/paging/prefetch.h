/*
 * Bringing pages in ahead.
 */
#ifndef VMRUN_PREFETCH_H
#define VMRUN_PREFETCH_H

#include "pager/lookahead.h"

/* After a fault at addr, with its own read under way, if it needs one: asks for what the policy
 * expects next.  Never waits, and takes only frames that nobody is short of.  No fault is
 * published. */
void prefetch(uint64_t addr, enum lookahead_cause cause);

/* Asks for the pages of [start, end) that are far, as far as there are frames: who needs them all
 * then waits once. */
void prefetch_range(uint64_t start, uint64_t end);

#endif
