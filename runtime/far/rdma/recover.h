/*
 * The data connections: made, and when one breaks: silence, reconnection, requests under way posted
 * again, or handed back.
 */
#ifndef VMRUN_RDMA_RECOVER_H
#define VMRUN_RDMA_RECOVER_H

#include "far/rdma/rdma.h"

/* Registers the frames, or a pool, whose pages it distributes over the queues. */
int rdma_data_attach(struct rdma_node *rn, char why[FAR_WHY]);

/* A data connection broke (d->why): takes all three down, and has the control connection renewed.
 * If the node hands back, gives back all requests. */
void rdma_data_broken(struct rdma_node *rn);
/* Handles events, time-outs, recovery, and the loss of the node. */
void rdma_data_step(struct rdma_node *rn, int64_t now);
/* far_driver.answer */
bool rdma_answer(struct far_node *n, bool moved);

#endif
