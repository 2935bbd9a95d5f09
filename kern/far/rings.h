/*
 * This vCPU's rings to the nodes.  A read is over when its entry is no longer BUSY.
 */
#ifndef VMRUN_RINGS_H
#define VMRUN_RINGS_H

#include "abi_rings.h"
#include "pager/frame.h"

void ring_read(uint64_t slot, frame_t f, pte_slot_t *pte);
/* As ring_read(), for a vCPU that asked a node without the host.  wrong: the page came from this
 * place, and was not what was written; -1: it did not come.  At most IO_RING / 2 while
 * ring_has_room() is asked before each. */
void ring_read_for(uint64_t slot, frame_t f, uint32_t vcpu, int wrong);
bool ring_has_room(void);

/* Prefetches of this vCPU that are under way: at most IO_RING, else ring_prefetch() has no room.
 * After one or more calls of ring_prefetch(), ring_prefetch_ring() tells the I/O thread. */
uint32_t ring_prefetches(void);
void ring_prefetch(uint64_t slot, frame_t f, bool marker);
void ring_prefetch_ring(void);

/* Asks for bytes of a page, which come to their offset in the bounce page of this vCPU.  raw: the
 * page's sum is not verified. */
struct io_entry *ring_part(uint64_t slot, uint32_t offset, uint32_t len, bool raw);
bool ring_part_over(const struct io_entry *e);
/* Sleeps until the bytes have come.  0, or -EIO: the page is not what was written. */
int ring_part_wait(struct io_entry *e);

/* A vCPU now waits for the page that a prefetch brings into this frame: the host sends its request,
 * if it has not yet, before other requests. */
void ring_promote(frame_t f);

/* Only for the vCPU that has the pager's writes (pager/cache.h), after env_slot_write_room() was
 * true. */
void ring_write(uint64_t slot, frame_t f);
frame_t ring_written(int *err /* OUT */);       /* a write that is over, or FRAME_NONE */
/* Waits, bounded, for the oldest write under way.  Only for the vCPU that has the pager's
 * writes. */
void ring_write_wait(void);

#endif
