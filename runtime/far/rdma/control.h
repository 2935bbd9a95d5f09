/*
 * The control connection: messages of nodeproto.h, keeping it up.
 */
#ifndef VMRUN_RDMA_CONTROL_H
#define VMRUN_RDMA_CONTROL_H

#include "far/rdma/rdma.h"

/* Makes its channel, and sets how its connections are made. */
int rdma_control_prepare(struct rdma_node *rn, char why[FAR_WHY]);
/* Connects and sends HELLO.  Waits, at most until deadline.  Fills in the limits of the node. */
int rdma_control_open(struct rdma_node *rn, const char *rest, int64_t deadline, char why[FAR_WHY]);
/* Sends GOODBYE, which releases the leases, and disconnects; waits a little. */
void rdma_control_close(struct rdma_node *rn);
/* With the lock held: handles events and messages, notices breaks, begins and ends attempts.  Never
 * waits. */
void rdma_control_step(struct rdma_node *rn, int64_t now);
/* With the lock held: sends a request and waits for its answer, across reconnections, until
 * deadline (ms).  0, or -errno.  -ENOLINK: the node is lost; or it hands back, and is down. */
int rdma_control_ask(struct rdma_node *rn, const union rdma_message *m, int64_t deadline,
                     union rdma_message *answer);
/* With the lock held: says that this process has moved away, or that it cannot.  Never waits.
 * True: memnode knows it; if it has moved, the connection is closed for good. */
bool rdma_control_answer(struct rdma_node *rn, bool moved);
/* Milliseconds until rdma_control_step must be called if nothing happens; -1: no limit. */
int rdma_control_patience(const struct rdma_node *rn, int64_t now);
/* With the lock held: it may be used for requests.  Else it is being made, or it is not known yet
 * where all slabs are (find.c). */
bool rdma_control_is_up(const struct rdma_control *c);

#endif
