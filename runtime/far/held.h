/*
 * Slots that the I/O side of this process holds, so that no thread or process writes them
 * meanwhile: those that repair.c copies, and one that scrub.c looks at.
 *
 * A slot that this process owns is made DUE while it is held.  So no process takes the slot when
 * the program frees it, and this process's own writes of the slot wait (request.c).  A shared slot
 * is written by no process.  If the program releases it meanwhile, this process keeps its part of
 * the slot until it lets go.
 *
 * Shared slots are copied by one process of the tree at a time, tree_common.repairer.  If two did,
 * a write of the first could miss a node, and a write of the second make the copy there good.  The
 * next owner of the slot would then write it, and the write of the first may still arrive
 * (copies.h, [C]).  So a process stays the repairer until no write that it gave up can arrive any
 * more, or until it is buried.
 *
 * By the I/O side, where nothing else is said.
 */
#ifndef VMRUN_FAR_HELD_H
#define VMRUN_FAR_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "far/tree.h"

/* Holds have numbers: those below REPAIR_FRAMES are of repair.c, one for each of its frames. */
#define HELD_SCRUB REPAIR_FRAMES
#define HELD_MOST  (REPAIR_FRAMES + 1)

/* The tree of this process, before its first slab is used.  t stays valid.  Any thread. */
void held_in(struct tree *t);

/* --- one slot --- */

/* A slot is held from held_take() until held_let_go(), or until held_over().  Hold i has no slot
 * before.  writes: the page will be written to places that lack it.  copied: called by held_over();
 * NULL: of repair.c itself.  A slot that is DUE for good is held too, if not `writes`; no write of
 * it may be under way.
 * 0; -EAGAIN: the slot is held already, or none may be taken now; -ESTALE: it is not this
 * process's, or another process is the repairer. */
int held_take(unsigned i, uint64_t slot, bool writes, void (*copied)(unsigned places));
void held_let_go(unsigned i);
/* The copying of a held slot is over: lets go of it.  places: those that have the page, a set.
 * False: the slot was held for another file than repair.c, whose copied() was called. */
bool held_over(uint64_t slot, unsigned places);
/* Does hold number i have a slot? */
bool held_is_used(unsigned i);
bool held_has(uint64_t slot);
/* Does the process still hold the slot of hold i, which the program may have freed meanwhile?
 * *owned: alone. */
bool held_still(unsigned i, bool *owned);
/* May the page of hold i be written to places that lack it?  True: it counts in held_writes(). */
bool held_may_write(unsigned i);
/* Does this process share the slot with others? */
bool held_shares(uint64_t slot);

/* --- all of them --- */

/* Is a page of a held slot being written to places that lack it, or will be? */
bool held_writes(void);
/* Another process may copy shared slots, unless a write that this process gave up can still arrive.
 * Not while held_writes(). */
void held_resign(void);
/* A read without a hold, or work with a held slot, is under way, as held_stop() sees it.  False:
 * nothing may begin now. */
bool held_begin(void);
void held_end(void);
/* As tree_release(), but slots that are held are released when they are let go.  Any thread. */
int held_release(const uint64_t *slots, size_t n);
/* Before fork, or before a process says that it writes no more: from here on nothing begins, until
 * held_go_on().  False: something is still under way.  Any thread, both. */
bool held_stop(void);
void held_go_on(void);
/* A hint. */
bool held_is_stopped(void);
/* How much is under way, and the word that says so.  Any thread. */
unsigned held_under_way(const void **word);
/* In a forked child: nothing is held. */
void held_forked(void);

#endif
