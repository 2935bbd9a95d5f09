/*
 * Queues that kern drives by itself (include/abi_direct.h): what every driver that has some needs.
 * The driver makes queue pairs, fills the queues in, and decides when they are UP.
 */
#ifndef VMRUN_FAR_DIRECT_H
#define VMRUN_FAR_DIRECT_H

#include <stdbool.h>
#include <stdint.h>
#include "abi_direct.h"
#include "abi_exits.h"
#include "far/node.h"

struct thread;
struct vm;

/* The queues of a node.  Made by EXIT_DIRECT, and never freed; by the I/O side from then on. */
struct far_direct {
        struct vm *vm;
        uint64_t gpa;                   /* of its rings, as kern maps them (direct_ring_at()) */
        struct direct_queue *queue[DIRECT_QUEUES];
        /* Slabs before this one were looked at for this epoch, when leases.places_added was so. */
        uint32_t slabs, places;
};

/* The guest-physical address of a ring (abi_direct.h). */
static inline uint64_t direct_ring_gpa(const struct far_direct *d, unsigned queue, unsigned done)
{
        return d->gpa + direct_ring_at(0, queue, done) - direct_rings(0);
}

/* EXIT_DIRECT and EXIT_DIRECT_RING. */
int64_t direct_exit_make(struct thread *t, struct exit_req *rq);
int64_t direct_exit_ring(const struct exit_req *rq);

/* By the I/O side: */

/* Where a slab is: as the driver's grant says now.  False: kern cannot read it. */
typedef bool direct_where(const struct far_place *p, uint64_t *from, uint32_t *key);
/* Tells kern which slabs it may read at this node, by queues of this epoch.  To be called before
 * they become UP, and then in each turn.  False: to be called again before that. */
bool direct_slabs(struct far_node *n, uint32_t epoch, direct_where *where);
/* A queue becomes UP, filled in but for state and counts. */
void direct_up(struct direct_queue *q);
/* A queue becomes DOWN: kern posts nothing more to it.  With its lock held, so that kern touches
 * neither queue nor rings until direct_release().  Waits for a vCPU that has the lock, which makes
 * no exit and has some hundred instructions left.  False: not within limit_ms, if that is not 0. */
bool direct_take(struct direct_queue *q, unsigned limit_ms);
/* The queue pair is gone, so that the card touches no frame any more: the host reads the pages that
 * were under way.  Gives the lock back. */
void direct_release(struct far_direct *d, struct direct_queue *q);
/* No queue of the node is UP or BROKEN: none has a request. */
bool direct_is_idle(const struct far_node *n);
/* Learns how long pages took. */
void direct_learn(struct far_direct *d);

/* Pages that came, for statistics.  Any thread. */
uint64_t direct_reads(const struct far_node *n);

#endif
