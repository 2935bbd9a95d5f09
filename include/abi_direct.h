/*
 * Queues to a node that kern drives by itself: what kern shares with the host that sets them up,
 * and with a network card.  The formats of cards are in kern/far/direct/mlx5.h and rxe.h.
 *
 * kern gives the memory of a queue (EXIT_DIRECT); the host fills in the rest and makes it UP, and
 * DOWN when its connection breaks.
 *
 * [I] While a queue is not UP, kern posts nothing to it and takes nothing from it; both are done
 * under its lock.  So the host that has made it DOWN, and then has the lock, has it to itself.
 */
#ifndef VMRUN_ABI_DIRECT_H
#define VMRUN_ABI_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "layout.h"

#define DIRECT_QUEUES 4                 /* of a node */

/* Requests in a queue: a power of two.  A test has less. */
#ifndef NIC_DEPTH
#define NIC_DEPTH 64u
#endif
#define NIC_BLOCK 64                    /* bytes of a block of mlx5's rings */

/* A READ of bytes of a node's memory into memory of this process, both as the card names them. */
struct nic_read {
        uint64_t from, to;
        uint32_t from_key, len;
};

/* The epoch of cards that are not there, which know no key. */
#define CARD_EPOCH 1u

enum nic_format { NIC_MLX5, NIC_RXE };

/* Set while the queue is not UP; but `half` changes under its lock. */
struct nic {
        char *send, *done;              /* the rings: elements only */
        /* mlx5: how many requests were posted, how many completions were taken.  rxe: the index of
         * the next, by this process. */
        _Atomic uint32_t *send_record, *done_record;
        _Atomic uint32_t *done_index;   /* rxe: of the next completion, by the card */
        char *bell;                     /* mlx5: the register's two halves, used in turn, */
        uint32_t bell_half;             /* and bytes from one to the other */
        uint32_t half;                  /* the next: 0 or 1 */
        /* mlx5: as the card has them: the queue pair, with the size of a request; this process's
         * memory.  rxe: its memory. */
        uint32_t pair, key;
        /* The number of elements - 1.  rxe: bytes of one, as a power of two. */
        uint32_t send_mask, done_mask, send_shift, done_shift;
        uint32_t format;                /* enum nic_format */
};

/* mlx5.  number: of the queue pair, 24 bits.  key: of this process's memory.  A request is a READ
 * of one piece: three segments of 16 bytes. */
#define NIC_SEGMENTS 3u
static inline void nic_name(struct nic *n, uint32_t number, uint32_t key)
{
        n->pair = __builtin_bswap32(number << 8 | NIC_SEGMENTS);
        n->key = __builtin_bswap32(key);
}

/* BROKEN: by kern, from UP: a READ has failed; the host makes the queue anew. */
enum direct_state { DIRECT_DOWN, DIRECT_UP, DIRECT_BROKEN };
/* Of a place for a request.  ASKED and TAKEN: under the lock.  FREE: without, by who has taken it,
 * when its frame is no longer the request's. */
enum direct_request { DIRECT_FREE, DIRECT_ASKED, DIRECT_TAKEN };

struct direct_queue {
        struct nic nic;
        uint32_t node, number;          /* of the queue among those of the node */
        uint32_t has_host;              /* 1: the host makes it, and looks after it */
        uint32_t exit_rings;            /* 1: the doorbell is an exit */
        uint32_t verify;                /* 1: pages have sums, which are compared */
        /* Which slabs it is for: those with places of this epoch (struct slab_place). */
        uint32_t epoch;
        _Atomic uint32_t state;         /* enum direct_state */
        /* Ticks that the last sampled fetch took; 0: none since the host looked. */
        _Atomic uint64_t took;
        /* How often a vCPU has polled in vain and slept.  A queue from which nothing comes while it
         * stays the same is one that nobody polls. */
        _Atomic uint32_t slept;
        /* READs that did not fail.  Under the lock; for others a statistic. */
        _Atomic uint64_t came;
        /* 0 or 1.  Guards posted, seen, and what struct nic says.  Who has it may be a vCPU that
         * does not run; it makes no exit meanwhile. */
        _Alignas(CACHE_LINE) _Atomic uint32_t lock;
        /* Requests that were posted, completions that were taken, modulo 2^32; hints without the
         * lock. */
        _Atomic uint32_t posted, seen;
        struct {
                _Atomic uint32_t state; /* enum direct_request */
                _Atomic uint32_t frame;
                uint64_t slot;
                uint32_t place;         /* of the slab, that is read */
                uint32_t vcpu;          /* that asked, and owns the frame if the fetch fails */
                uint64_t asked;         /* the TSC, of a sampled fetch; else 0 */
        } request[NIC_DEPTH];           /* by post number */
};

/* A pool page holds a queue. */
_Static_assert(NIC_DEPTH < 64 || sizeof(struct direct_queue) <= PAGE_SIZE, "a page is enough");

/* Where a queue's rings are in the guest, if the card's driver has made them: they may be anywhere
 * in the host. */
#define DIRECT_RING  0x40000            /* bytes at most */
#define DIRECT_RINGS (DIRECT_QUEUES * 2ul * DIRECT_RING)    /* of a node: 2 MiB */
static inline uint64_t direct_rings(uint32_t node) { return NIC_WINDOW + node * DIRECT_RINGS; }
static inline uint64_t direct_ring_at(uint32_t node, unsigned queue, unsigned done)
{
        return direct_rings(node) + (queue * 2 + done) * (uint64_t)DIRECT_RING;
}

#endif
