/*
 * The far tiers' slots.  slots.c also provides the pager's env_slot_*, and its waits for pages.
 */
#ifndef VMRUN_SLOTS_H
#define VMRUN_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include "pager/frame.h"

/* How many slots this process holds. */
uint64_t slots_in_use(void);

/* Service vCPU: leases the next slab before the last one is used up. */
void slots_lease_ahead(void);

/* Called before slots are shared with a child: from then on other processes may free slots too. */
void slots_fork(void);

/* In the child: makes the slab of an inherited slot usable.  False: no memory. */
bool slots_reach(uint64_t slot);

/* Bytes of a slot that this vCPU reads; it has one such read under way at a time.  The caller sees
 * to it that no vCPU writes to the slot, or frees it.  IN: slot, offset, len; raw: the page's sum
 * is not verified. */
struct slot_part {
        uint64_t slot;
        uint32_t offset, len;
        bool raw;
        uint64_t due;                   /* of a timed tier */
        struct io_entry *entry;         /* of a node */
};
/* Asks for the bytes. */
void slot_part_ask(struct slot_part *p);
/* Waits for the bytes, and copies them to `to`, which may be their place in the bounce page.  0, or
 * -EIO: the page is not what was written. */
int slot_part_take(const struct slot_part *p, void *to);
/* A page of this vCPU's own, beyond the cache; NULL: there are more vCPUs than such pages. */
void *slot_bounce(void);

/* Pages that this vCPU has asked for ahead and that are under way. */
uint32_t slots_ahead(void);
/* A vCPU now waits for the page that a prefetch brings into this frame. */
void slots_promote(frame_t f);

/* Waits, bounded, for a write under way.  Only for the vCPU that has the pager's writes
 * (pager/cache.h). */
void slots_write_wait(void);

#endif
