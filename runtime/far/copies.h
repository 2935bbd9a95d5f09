/*
 * Copies: with --replicas a page is on several nodes.  This file says which of its copies are good.
 *
 * A slab has places on nodes of different domains.  A write goes to all of them.  It is over when
 * each node has answered or has missed it, and at least one has answered.  Before it is over, the
 * bits of the slot (slab_map.good) say to all processes of the tree which places have the page.  A
 * place has no state of its own: any process that reaches its node may read the page where the bit
 * is set.  So two processes that see different nodes fail never give up the last good copy, as no
 * write is over without one.
 *
 * A slab of a single place needs no bits: slab_map.places is 0.  That word alone says so, to all
 * processes, and may change while they run:
 *
 * [B] Before it becomes 1, by a process that has the tree's mutex, the bits of place 0 are all set;
 *     no process changes bits before.  A second place is listed only after that.  So a process that
 *     finds 0 knows that its page has no other copy: only the slot's owner could have made one
 *     (repair.c).
 *
 * A place that is added later, after a node was lost, gets a number of its own.  So a process that
 * does not know the new place yet writes to the others, and clears the bits of the new one.
 *
 * A write that a node missed may still arrive there.  It must not overwrite a page that was written
 * later, by another owner of the slot:
 *
 * [C] No process writes a copy whose bit is clear as long as some process has a write at that node
 *     that it called over without an answer.  Such a process has the node's bit in
 *     tree_process.unfenced.  It sets the bit before the copy's bit is cleared.  It clears the bit
 *     when memnode has answered a newer connection, and so ended the older one (docs/protocol.md,
 *     rule 3); or the bit is cleared when the process is buried after a cut (rule 5).
 *
 * A process may be buried although a node does not answer and so cannot cut it off, if the node's
 * pages have copies elsewhere.  Then no copy of its slots there is good any more, and the node is
 * in tree_common.uncut, which works as a bit in `unfenced`, until the node has cut the process off.
 *
 * Nodes that do not fence need no such bit: their slots stay DUE, and are never written again.
 */
#ifndef VMRUN_FAR_COPIES_H
#define VMRUN_FAR_COPIES_H

#include <stdbool.h>
#include <stdint.h>
#include "abi_control.h"
#include "far/node.h"
#include "include/allocator.h"

/* The tree's memory (include/allocator.h), and the number of this process in it. */
struct copies {
        char *units;
        uint32_t self;
};

/* Of this process, once it uses a slab. */
static inline struct copies copies(void)
{
        return (struct copies){ .units = (char *)TREE_WINDOW, .self = CONTROL->tree_number };
}

/* The place to read a page from now, as an index; -1: none.  It is on the node of the highest
 * priority that answers and has the page; nodes of one priority share.  not: places to leave out, a
 * set. */
int copies_to_read(const struct copies *c, const struct far_slab *s, uint64_t slot, unsigned not);
/* The places whose copy is good, also of nodes that do not answer, or are lost: a set. */
unsigned copies_good(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* The places that can be written now, a set. */
unsigned copies_to_write(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* A good copy can be read, and some place that answers has none. */
bool copies_wanting(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* The places that lack the page and can be written to now, a set: of nodes that fence. */
unsigned copies_to_repair(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* As copies_wanting(), of any of the slab's first npages slots that some process holds, without
 * slots of which no copy fits its sum.  True also as long as there is a place that this process
 * does not know yet. */
bool copies_any_wanting(const struct copies *c, const struct far_slab *s, uint32_t slab,
                        uint32_t npages);
/* How many pages of the slab that some process holds are not at place k, though at another one,
 * whether its node answers or not: for people. */
uint32_t copies_lacking(const struct copies *c, const struct far_slab *s, uint32_t slab,
                        uint32_t npages, unsigned k);
/* How many pages of the slab that some process holds are at place k, and of them those that no
 * other node has that answers and does not drain (*left): for people. */
uint32_t copies_at(const struct copies *c, const struct far_slab *s, uint32_t slab, uint32_t npages,
                   unsigned k, uint32_t *left);
/* How many pages of the slab that some process holds have a copy, but fewer than `replicas` at
 * nodes that answer: for people. */
uint32_t copies_fewer(const struct copies *c, const struct far_slab *s, uint32_t slab,
                      uint32_t npages, unsigned replicas);
/* Before a write is called over.  good: the places that have the page, a set that is not empty; all
 * others missed the write. */
void copies_written(const struct copies *c, uint64_t slot, unsigned good);
/* These places were given the good copy, while no process could write the slot. */
void copies_repaired(const struct copies *c, uint64_t slot, unsigned good);
/* By the process that holds the slot: no copy fits its sum, so none can be made, mostly until the
 * slot is written. */
void copies_unfit(const struct copies *c, uint64_t slot);
/* The copy at place k is wrong, although it was written: no process reads it from here on. */
void copies_spoiled(const struct copies *c, uint64_t slot, unsigned k);
/* No place will ever give the page: each has lost it, or missed it.  False as long as there is a
 * place that this process does not know yet. */
bool copies_gone(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* No place will ever take a page.  False also as copies_gone() is. */
bool copies_all_lost(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* Does the node drain, as it told some process?  Then no copy is made there. */
bool copies_drain(const struct copies *c, const struct far_node *n);
/* Draining nodes have a good copy, and of the others that answer none has. */
bool copies_only_draining(const struct copies *c, const struct far_slab *s, uint64_t slot);
/* Of `places`, those at nodes that do not drain: a set. */
unsigned copies_staying(const struct copies *c, const struct far_slab *s, unsigned places);
/* Before this process gives writes up: they may still arrive at node n; and once they no longer
 * can. */
void copies_unfenced(const struct copies *c, const struct far_node *n);
void copies_fenced(const struct copies *c, const struct far_node *n);

#endif
