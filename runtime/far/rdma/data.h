/*
 * The data connections: open and close, post, poll, arm.
 */
#ifndef VMRUN_RDMA_DATA_H
#define VMRUN_RDMA_DATA_H

#include "far/rdma/rdma.h"

int rdma_data_open(struct rdma_node *rn, int64_t deadline, char why[FAR_WHY]);
void rdma_data_close(struct rdma_node *rn);
unsigned rdma_data_post(struct far_node *n, struct far_request **r, unsigned count);
unsigned rdma_data_poll(struct far_node *n);
int rdma_data_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms);

#endif
