/*
 * The far tiers' slots.  slots.c also provides the pager's env_slot_*, but for the rings.
 */
#ifndef VMRUN_SLOTS_H
#define VMRUN_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

/* How many this process holds. */
uint64_t slots_in_use(void);

/* Service vCPU: leases the next slab before the last one is used up. */
void slots_lease_ahead(void);

/* Called before slots are shared with a child: from then on other processes may free slots too. */
void slots_fork(void);

/* In the child: makes the slab of an inherited slot usable.  False: no memory. */
bool slots_reach(uint64_t slot);

#endif
