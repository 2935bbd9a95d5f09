/*
 * Copies: with --replicas a page is on several nodes, and this says which of its copies are good.
 *
 * A slab has places on nodes of different domains.  A write goes to all of them, and is over when
 * each node has answered or has missed it, and one has answered.  Before it is over, the bits of
 * the slot (slab_map.good) say to all processes of the tree which places have it.  There is no
 * state of a place: a page may be read wherever its bit is set, by any process that reaches the
 * node.  So two processes that see different nodes fail never give up the last good copy, as no
 * write is over without one.
 *
 * A slab of a single place needs no bits: slab_map.places is 0.  That word alone says so, to all
 * processes, and may change while they run:
 *
 * [B] Before it becomes 1, by who has the tree's mutex, the bits of place 0 are all set; nobody
 *     changes bits before.  A second place is listed only after that.  So who finds 0 can know
 *     that its page has no other copy: only its owner could have made one (repair.c).
 *
 * A place that is added later, after a node was lost, gets a number of its own.  So a process that
 * does not know it yet writes to the others, and clears its bits.
 *
 * A write that a node missed may still arrive there.  It must not meet a page that was written
 * later, by another owner of the slot:
 *
 * [C] Nobody writes a copy whose bit is clear as long as a process has a write at that node that it
 *     called over without an answer.  Such a process has the node's bit in tree_process.unfenced:
 *     set before the copy's bit is cleared, and cleared itself when memnode has answered a newer
 *     connection, and so ended the older one (docs/protocol.md, rule 3), or when the process is
 *     buried after a cut (rule 5).
 *
 * A process may be buried although a node does not answer and so cannot cut it off, if the node's
 * pages have copies elsewhere.  Then no copy of its slots there is good any more, and the node is
 * in tree_common.uncut, which works as a bit in `unfenced`, until it has cut the process off.
 *
 * Nodes that do not fence need no such bit: their slots stay DUE, and are never written again.
 */
#ifndef VMRUN_FAR_COPIES_H
#define VMRUN_FAR_COPIES_H

#include <stdbool.h>
#include <stdint.h>
#include "far/node.h"

/* The tree's memory (include/tree.h), and the number of this process in it. */
struct copies {
        char *units;
        uint32_t self;
};

/* The place to read a page from now, as an index; -1: none.  The node of highest priority that
 * answers and has it; nodes of the same priority share.  not: places to leave out, a set. */
int copies_to_read(const struct copies *c, const struct far_slab *s, uint64_t slot, unsigned not);
/* The places whose copy is good, also of nodes that do not answer, or are lost: a set. */
unsigned copies_good(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* The places that can be written now, a set. */
unsigned copies_to_write(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* A good copy can be read, and at a place that answers there is none. */
bool copies_wanting(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* The places that it can be written to now, a set: of nodes that fence. */
unsigned copies_to_repair(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* As copies_wanting(), of any of the slab's first npages slots that some process holds, but for
 * those that are unfit.  True also as long as there is a place that this process does not know yet.
 */
bool copies_any_wanting(const struct copies *c, const struct far_slab *s, uint32_t slab,
                        uint32_t npages);
/* How many pages of the slab that some process holds are not at place k, though at another one,
 * whether its node answers or not: for people. */
uint32_t copies_lacking(const struct copies *c, const struct far_slab *s, uint32_t slab,
                        uint32_t npages, unsigned k);
/* Before a write is called over.  good: the places that have the page, not empty; all others missed
 * it. */
void copies_written(const struct copies *c, uint64_t slot, unsigned good);
/* These have been given the good copy, while nobody else could write the slot. */
void copies_repaired(const struct copies *c, uint64_t slot, unsigned good);
/* By who holds the slot: no copy fits its sum, so none can be made, mostly until it is written. */
void copies_unfit(const struct copies *c, uint64_t slot);
/* The copy at place k is wrong, although it was written: nobody is to read it. */
void copies_spoiled(const struct copies *c, uint64_t slot, unsigned k);
/* No place will ever give the page: each has lost it, or missed it.  False as long as there is a
 * place that this process does not know yet. */
bool copies_gone(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* No place will ever take a page; the same holds. */
bool copies_all_lost(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* A process was told that this node is to be left: no copy is made there. */
bool copies_leave(const struct copies *c, const struct far_node *n);
/* Nodes that are to be left have a good copy, and of those that stay and answer none has. */
bool copies_need_leaving(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* Of places with a page, those at nodes that are not to be left: a set. */
unsigned copies_staying(const struct copies *c, const struct far_slab *s, unsigned places);
/* Writes of this process may arrive late at node n, from before it gives them up; and not any
 * more. */
void copies_unfenced(const struct copies *c, const struct far_node *n);
void copies_fenced(const struct copies *c, const struct far_node *n);

#endif
