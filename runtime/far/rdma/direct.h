/* Queue pairs that kern drives by itself: direct.c.  By the I/O side, but for the last two. */
#ifndef VMRUN_RDMA_DIRECT_H
#define VMRUN_RDMA_DIRECT_H

#include "far/rdma/rdma.h"

/* While the data connections are up: makes the queue pairs, and looks after them.  False: one has
 * failed (d->why): the data connections count as broken. */
bool rdma_direct_step(struct rdma_node *rn, int64_t now);
/* ms for which a queue with requests has completed nothing. */
int64_t rdma_direct_stalled(struct rdma_node *rn);
/* The data connections are about to end, or the node drains: kern posts nothing more, and the host
 * reads what was under way. */
void rdma_direct_down(struct rdma_node *rn);
/* As rdma_direct_down(), at the end of the process, whose vCPUs may not run any more. */
void rdma_direct_close(struct rdma_node *rn);
/* In each turn while they are up: rings for threads that may not, and sees demand reads, for the
 * pace. */
void rdma_direct_poll(struct rdma_node *rn);
/* Whether the fault handler reads, or why not: a part of a sentence, "" if it is not to.  For
 * people: what it reads may change. */
#define RDMA_HOW (FAR_WHY + 64)
void rdma_direct_how(const struct rdma_node *rn, char text[RDMA_HOW]);
/* They are being made. */
bool rdma_direct_connects(const struct rdma_node *rn);

/* Of struct far_driver. */
int rdma_direct_ring(struct far_node *n, unsigned queue);

#endif
