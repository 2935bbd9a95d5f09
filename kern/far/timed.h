/*
 * Timed tiers: memory that kern copies itself, but not before a network of the tier's latency and
 * bandwidth would have brought the page (far/wire.h).  For measurements that repeat.
 *
 * No exits, unless a wait is long.  There is no device that moves pages behind the program's back:
 * a vCPU that waits, or that looks ahead, delivers all pages that are due, also those that other
 * vCPUs asked for.
 */
#ifndef VMRUN_TIMED_H
#define VMRUN_TIMED_H

#include "abi_rings.h"
#include "abi_slab.h"
#include "far/direct/queue.h"
#include "pager/frame.h"

/* A slab of kind SLAB_TIMED is used from now on.  False: the pool is used up. */
bool timed_add(const struct slab *s);

/* Asks for the page in a slot's memory: op is IO_READ, or IO_PREFETCH or IO_MARKER for a page that
 * no vCPU waits for.  It ends by page_fetched(). */
void timed_read(const struct slab *s, const void *slot, frame_t f, enum io_op op);
/* A READ was posted to a queue that timed_add() made. */
void timed_rung(struct direct_queue *q);
/* Asks for len bytes of a slot's memory, over the wire of the slab's node.  Returns when they are
 * due. */
uint64_t timed_part(const struct slab *s, size_t len);
/* Waits until `due`.  The clock runs on while the caller copies the bytes: a network card would
 * have brought them to a bounce page. */
void timed_part_wait(uint64_t due);
/* How many pages this vCPU has under way by IO_PREFETCH and IO_MARKER. */
uint32_t timed_ahead(void);

/* Delivers the pages that are due. */
void timed_poll(void);
/* timed_poll().  True: few of the pages that this vCPU asked for ahead had come, so the wire is
 * hardly faster than the program. */
bool timed_poll_slow(void);
/* Called before this vCPU sleeps on a word that is `seen` until the page for frame f comes.  False:
 * that page is not on a wire.  Else waits, bounded, in an exit if the wait is long; then the caller
 * may poll. */
bool timed_wait(const void *word, uint64_t seen, frame_t f);
/* This vCPU had to wait for a page that it had asked for ahead.  Waits for the next ones too, for a
 * little more than half of them: so a program that is faster than the wire waits once a batch, and
 * the rest of the batch keeps the wire busy. */
void timed_stay(void);

/* For the vCPU that has the pager's writes (pager/cache.h) alone. */
void timed_write(const struct slab *s, void *slot, frame_t f);
frame_t timed_written(void);            /* a write that is over, or FRAME_NONE */
/* Waits, bounded, for the oldest write under way.  False: there is none. */
bool timed_write_wait(void);

#endif
