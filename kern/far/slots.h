/*
 * The far tiers' slots.  slots.c also provides the pager's env_slot_*, and its waits for pages.
 */
#ifndef VMRUN_SLOTS_H
#define VMRUN_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include "pager/frame.h"

/* How many this process holds. */
uint64_t slots_in_use(void);

/* Service vCPU: leases the next slab before the last one is used up. */
void slots_lease_ahead(void);

/* Called before slots are shared with a child: from then on other processes may free slots too. */
void slots_fork(void);

/* In the child: makes the slab of an inherited slot usable.  False: no memory. */
bool slots_reach(uint64_t slot);

/* Bytes of a slot that this vCPU reads, one such at a time; the caller sees to it that nobody
 * writes to the slot, or frees it.  IN: what, and raw: without a look at the page's sum. */
struct slot_part {
        uint64_t slot;
        uint32_t offset, len;
        bool raw;
        uint64_t due;                   /* of a timed tier */
        struct io_entry *entry;         /* of a node */
};
/* Asks for them. */
void slot_part_ask(struct slot_part *p);
/* Waits for them, and copies them.  to may be their place in the bounce page.  0, or -EIO: the page
 * is not what was written. */
int slot_part_take(const struct slot_part *p, void *to);
/* A page of this vCPU's own, beyond the cache; NULL: it is one of too many. */
void *slot_bounce(void);

/* Does its page come some time after it was asked for (ENV_POSTED)? */
bool slot_is_posted(uint64_t slot);
/* Pages that this vCPU has asked for ahead and that are under way. */
uint32_t slots_ahead(void);
/* The page that a prefetch brings into this frame is waited for now. */
void slots_promote(frame_t f);

/* Waits, bounded, for a write under way.  Only for the vCPU that has the pager's writes
 * (pager/pager.h). */
void slots_write_wait(void);

#endif
