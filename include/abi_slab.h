/*
 * A slab: a run of slots leased from one far tier.  Slot number = slab index << SLAB_SHIFT | page
 * in the slab.
 */
#ifndef VMRUN_ABI_SLAB_H
#define VMRUN_ABI_SLAB_H

#include <stdint.h>

#define SLAB_SHIFT  18                  /* at most 1 GiB a slab */
#define SLABS_MAX   4096
#define SLAB_NODES  64                  /* nodes are numbered below it */
#define SLAB_PLACES 8                   /* that a slab ever has; each lost node costs one */
/* MEMORY: kern copies pages.  REMOTE: the host moves them, asked by the rings.  TIMED: kern copies
 * a page when a network would have brought it. */
enum slab_kind { SLAB_MEMORY = 1, SLAB_REMOTE = 2, SLAB_TIMED = 3 };
struct slab {
        uint32_t kind;                  /* enum slab_kind */
        uint32_t pages;
        /* Not SLAB_REMOTE: address in FAR_WINDOW, equal in guest and host. */
        uint64_t va;
        uint64_t gpa;
        uint32_t node;                  /* of its first place */
        /* A set of places whose pages kern can read by queues (abi_direct.h); only grows.  Release:
         * their entries below are there. */
        _Atomic uint32_t direct;
        uint64_t queues;                /* a set of nodes: kern makes queues to them */
        uint64_t map_gpa;               /* of its struct slab_map (allocator.h) */
        /* SLAB_TIMED, equal for all slabs of a node: ticks of the TSC; ticks a page, in units of
         * 2^-SLAB_TICK_SHIFT. */
        uint64_t latency, page_ticks;
        /* Pages are read by queues of this epoch.  Address and key, as a card has them, change only
         * while none of the node's queues is UP. */
        struct slab_place { _Atomic uint64_t from; _Atomic uint32_t key, epoch; }
                place[SLAB_PLACES];
        uint8_t node_at[SLAB_PLACES];   /* by place */
};
#define SLAB_TICK_SHIFT 16

#endif
