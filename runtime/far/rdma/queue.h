/*
 * One data connection: from requests to work requests, and back.  -errno: the connection is broken,
 * and rdma_data.why says why.
 */
#ifndef VMRUN_RDMA_QUEUE_H
#define VMRUN_RDMA_QUEUE_H

#include "far/rdma/rdma.h"

/* Adds a request, which is under way from here on, and gives it memory.  q has room (count <
 * depth). */
void rdma_queue_add(struct rdma_node *rn, struct rdma_queue *q, struct far_request *r);
/* Posts unsent requests, as far as there is room on the device. */
int rdma_queue_send(struct rdma_node *rn, struct rdma_queue *q);
/* Takes completions; adds the number of finished requests to *over. */
int rdma_queue_poll(struct rdma_node *rn, struct rdma_queue *q, unsigned *over);
/* Makes the next completion an event on the channel.  True: a completion is already there, kept for
 * poll. */
bool rdma_queue_arm(struct rdma_queue *q);
/* Takes a queue down: all requests under way wait to be posted again. */
void rdma_queue_down(struct rdma_queue *q);
/* Gives all requests back by far_failed(). */
void rdma_queue_fail(struct rdma_node *rn, struct rdma_queue *q);
/* Pages of prefetches and writes that were posted, and that are over. */
uint64_t rdma_background_sent(const struct rdma_data *d);
uint64_t rdma_background_done(const struct rdma_data *d);

#endif
