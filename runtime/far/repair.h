/*
 * Repair: pages that a node missed are copied to it once it answers, by all processes of the tree
 * together at --rebuild-rate.
 *
 * Each process copies the slots that it holds.  One that it owns is made DUE meanwhile, so nobody
 * takes the slot when it is freed; its own writes of the slot wait (request.c).  One that it shares
 * is written by nobody; if the program releases it meanwhile, the process keeps its hold until the
 * copy is over.
 *
 * Shared slots are copied by one process of the tree at a time, tree_common.repairer.  If two did,
 * the write of one could miss a node, and the other's make the copy good: then the next owner
 * writes it, and the first one's write may still arrive (copies.h, [C]).  So it stays the repairer
 * until no write that it gave up can arrive any more, or it is buried.
 *
 * Pages of nodes that are to be left (leave.h) are copied in the same way.  A pass also looks
 * whether there are pages that only such nodes have.
 */
#ifndef VMRUN_FAR_REPAIR_H
#define VMRUN_FAR_REPAIR_H

#include <stdbool.h>
#include <stdint.h>
#include "far/tree.h"
#include "pager/frame.h"

/* The tree of this process; it stays valid. */
void repair_in(struct tree *t);
/* A copy that was wanting may be made now, since a node is back or a slab has a place more.  Any
 * thread. */
void repair_wanted(void);
/* By the I/O side: one is wanting. */
void repair_missed(void);
/* A page was written to nodes only that are to be left. */
void repair_needed(void);
/* A whole pass has found no page of this process that only nodes to be left have, and none was
 * written since. */
bool repair_is_free(void);
/* The next slot to copy, and the frame to do it by: request_repair().  False: none now, as far as
 * the rate allows. */
bool repair_next(uint64_t *slot, frame_t *frame);
/* When repair_next() should be called again, in ms; -1: when something else happens. */
int repair_patience(void);
/* This slot is being copied. */
bool repair_holds(uint64_t slot);
/* A copy that repair_next() named is over.  places: those that have the page now, a set; none: it
 * is tried again soon.  All that it was sent to fence, so the slot is not DUE for it. */
void repair_done(uint64_t slot, unsigned places);
/* No copy of it fits its sum, so it is not copied.  Mostly it changed while it was sent: then it
 * stays in the cache, for as long as the program keeps writing it, and is written to all places
 * when it leaves.  So copies are whole without it, and to try again would keep I/O busy with it. */
void repair_unfit(uint64_t slot);
/* It was not begun, as the slot is being written, which makes all copies. */
void repair_put_off(uint64_t slot);
/* As tree_release(), but slots that are being copied are released after that. */
int repair_release(const uint64_t *slots, size_t n);
/* Before a process says that it writes no more: begins no copy from here on.  False: one is still
 * under way.  Any thread. */
bool repair_stop(void);
/* How many are under way, and the word that says so. */
unsigned repair_under_way(const void **word);
/* What repair_stop() was for is over. */
void repair_go_on(void);
void repair_forked(void);

/* --- for scrub.c, which reads what repair copies, by the I/O side --- */

/* A read, or something with the held slot, is under way, as repair_stop() sees it.  False: nothing
 * is to begin now. */
bool repair_begin(void);
void repair_end(void);
/* Does this process hold it with others? */
bool repair_shares(uint64_t slot);
/* Holds one slot, as one that is copied, until repair_let_go(), or until its copy is over, which
 * then calls copied(): no other process takes it, and no write of it begins.  It may be freed
 * meanwhile: repair_still_holds().  One that is DUE is held too: no write of it may be under way.
 * 0; -EAGAIN: not now; -ESTALE: it is not this process's. */
int repair_hold(uint64_t slot, void (*copied)(unsigned places));
/* *owned: it is this process's alone. */
bool repair_still_holds(bool *owned);
/* May the held slot be written where it is wanting, by request_repair()? */
bool repair_may_write(void);
void repair_let_go(void);

/* Pages that this process copied.  Any thread. */
uint64_t repair_pages(void);

#endif
