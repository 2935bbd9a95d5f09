/*
 * Repair: pages that a node missed are copied to it once it answers, by all processes of the tree
 * together at --rebuild-rate.
 *
 * Each process copies the slots that it holds (held.h), in passes over all of them.  Pages of
 * draining nodes (drain.h) are copied in the same way; a pass also finds pages that only such nodes
 * have.
 *
 * By the I/O side, where nothing else is said.
 */
#ifndef VMRUN_FAR_REPAIR_H
#define VMRUN_FAR_REPAIR_H

#include <stdbool.h>
#include <stdint.h>
#include "pager/frame.h"

/* A page that lacks a copy may be copied now, since a node is back or a slab has one more place.
 * Any thread. */
void repair_wanted(void);
/* A page lacks a copy from here on. */
void repair_missed(void);
/* A page was written to draining nodes only. */
void repair_needed(void);
/* A whole pass has found no page of this process that only draining nodes have, and none was
 * written since. */
bool repair_has_drained(void);
/* The next slot to copy, and the frame to do it by: request_repair().  False: none at present, or
 * the rate allows none. */
bool repair_next(uint64_t *slot, frame_t *frame);
/* When repair_next() should be called again, in ms; -1: when something else happens. */
int repair_patience(void);
/* A copy that repair_next() named is over.  places: those that have the page now, a set; none: the
 * page is tried again soon.  All nodes that it was sent to fence, so the slot is not DUE for it. */
void repair_done(uint64_t slot, unsigned places);
/* No copy of the page fits its sum, so it is not copied.  Mostly the page changed while it was
 * written.  Then it stays in the cache for as long as the program keeps writing it, and is written
 * to all places when it leaves the cache.  So copies count as whole without it: to try it again
 * would keep the I/O side busy with it. */
void repair_unfit(uint64_t slot);
/* The copy was not begun, as the slot is being written, which makes all copies. */
void repair_put_off(uint64_t slot);
/* In a forked child; held_forked() included. */
void repair_forked(void);

/* Pages that this process copied.  Any thread. */
uint64_t repair_pages(void);

#endif
