/*
 * What the parts of the sequence of slabs share, for them alone:
 *
 *   lease.c        how a slab is leased, or found in the tree
 *   moves.c        places on other nodes, for slabs whose nodes are lost, silent or draining
 *   slabs_more.c   nodes that are added
 *   places.c       where a slab is: its places on nodes
 *   slabs.c        how much the nodes can give, and this process's part in the tree
 *
 * Each calls those below it alone.
 */
#ifndef VMRUN_FAR_SLABS_H
#define VMRUN_FAR_SLABS_H

#include <pthread.h>
#include <stdatomic.h>
#include "far/cut.h"
#include "far/node.h"
#include "far/tree.h"

/* Slabs for which the tree's file has more room, for nodes that are added: 3 GiB of addresses,
 * and next to no memory.  At least 30 GiB. */
#define SLABS_TO_ADD 64

struct leases {
        struct far_node *const *nodes;
        _Atomic unsigned nnodes;        /* changes under `lock` */
        uint32_t max_slabs;             /* the most that the nodes can give */
        _Atomic uint32_t places_added;  /* places that were added to slabs: without the lock, too */
        /* pages of guest-physical space that no memory node can take yet */
        uint64_t memory_room;
        /* The lease lock.  Guards the rest, CONTROL->slabs and nslabs, and of each node how much it
         * has leased.  Taken before the lock of the tree.  "With the locks held": with both. */
        pthread_mutex_t lock;
        struct tree tree;
        /* there is a tree.  The first lease makes it, so a program that fits its cache has none. */
        bool in_tree;
        /* across execve: the descriptor of the tree to join at the first lease */
        int inherited;
        struct cutter cutter;
};
extern struct leases leases;

static inline struct tree_common *slabs_common(void)
{
        return tree_common(leases.tree.units);
}
/* Nodes that are draining, or were drained: a set. */
static inline uint64_t slabs_draining(void) { return atomic_load(&slabs_common()->draining); }
static inline bool is_draining(const struct far_node *n)
{
        return slabs_draining() >> n->index & 1;
}
/* Do bits say which places of slab i have a page? */
static inline bool places_have_bits(uint32_t i)
{
        return atomic_load(&tree_map(leases.tree.units, i)->places) > 0;
}

/* --- slabs.c --- */
/* The most pages, of at most n->pages, that `count` slabs can hold. */
uint64_t slabs_pages(const struct far_node *n, uint32_t count);
/* Copies from the tree how much each node has leased, and to the tree.  With the locks held. */
void slabs_pull(void);
void slabs_push(void);
/* Makes or joins the tree.  With the lease lock held.  0, or -errno with a message. */
int slabs_start(void);
/* This process has become a member of the tree.  Nodes know it by its birth.  The first process of
 * a tree has connected before there was a tree, under the number that it has now
 * (far_node_open()). */
void slabs_is_member(void);
/* The number by which nodes know this process. */
uint64_t slabs_own_member(void);

/* --- places.c --- */
/* Nodes that do not answer at present, or were drained: a set.  A copy on a drained node would lack
 * for good. */
uint64_t slabs_down(void);
/* Leases `pages` pages of a node for the next place of a slab, which counts after place_add().
 * False: the node has no more, or does not answer. */
bool place_lease(struct vm *vm, struct far_node *n, uint32_t pages, struct slab *s,
                 struct far_slab *f);
/* Release: the I/O side sees the content of place[places]. */
void place_add(struct far_slab *f);
/* Are `count` copies enough for slab i, which is on remote nodes?  0; -ENOSPC with a message. */
int places_check(uint32_t i, unsigned count);
/* Puts slab i, with all its places, in the list of the tree. */
void places_list(uint32_t i, const struct slab *s);
/* A place that another process leased becomes one of this process too.  For plain memory, leasing
 * those pages once more maps them. */
int place_use(struct vm *vm, uint32_t i, struct slab *s);
/* The node will not give back its pages, or has not answered for --timeout. */
bool place_is_gone(const struct far_node *n, int64_t now);
/* With the locks held.  True: the slab has one more place, without any page yet. */
bool place_add_copy(struct vm *vm, uint32_t i);

#endif
