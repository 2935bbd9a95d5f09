/*
 * Which node gives the next slab, and how large the slab is.  Pure functions of the nodes' sizes
 * and leases.
 */
#ifndef VMRUN_FAR_PLACEMENT_H
#define VMRUN_FAR_PLACEMENT_H

#include "far/node.h"

/* pages; each slab of a node is twice as large as its last, up to slab_most */
#define SLAB_FIRST (16u << 20 >> 12)
#define SLAB_LAST  (1u << SLAB_SHIFT)   /* pages; no slab is larger */

/* Pages of the slab that a node would give next, 0 if it has no page left.  A multiple of its
 * granule. */
uint32_t placement_slab(const struct far_node *n);
/* Index of the node to ask next, of those that are not in the set `without`; -1: none has
 * a page left.  NODES_MAX is at most 64. */
int placement_next(enum placement how, struct far_node *const nodes[], unsigned n,
                   uint64_t without);
/* Chooses the nodes of the next slab, the first as placement_next() does: one node that is memory,
 * or up to `replicas` remote nodes of different domains.  Fills in their indices; *pages: the size
 * of the slab, which each of them has left.  Returns how many nodes: fewer than `replicas` if there
 * are no more. */
unsigned placement_copies(enum placement how, struct far_node *const nodes[], unsigned n,
                          uint64_t without, unsigned replicas, unsigned index[REPLICAS_MAX],
                          uint32_t *pages);
/* May no page have copies on both? */
bool placement_fail_together(const struct far_node *a, const struct far_node *b);
/* How many sets of remote nodes there are that fail together. */
unsigned placement_domains(struct far_node *const nodes[], unsigned n);
/* Pages that fit the nodes if each page is on `replicas` remote nodes of different domains, or on
 * as many as there are. */
uint64_t placement_room(struct far_node *const nodes[], unsigned n, unsigned replicas);
/* How many slabs a node of that many pages gives in all, counted up to `most`. */
uint32_t placement_count(const struct far_node *n, uint64_t pages, uint32_t most);
/* How many more slabs a node gives. */
uint32_t placement_left(const struct far_node *n);
/* Sets slab_most of each node, by the capacity of all. */
void placement_sizes(enum placement how, struct far_node *const nodes[], unsigned n);
/* The smallest largest slab with which n nodes of that many pages together need at most `names`
 * slabs. */
uint32_t placement_most(uint64_t pages, unsigned n, uint32_t names);

#endif
