/*
 * Which requests go in one work request.
 */
#ifndef VMRUN_RDMA_RUN_H
#define VMRUN_RDMA_RUN_H

#include "far/rdma/rdma.h"

/* Neighbours for one work request: how many requests from r on, at most max_pages, form one run in
 * their slab, upwards or downwards (pages that a stream reads forward were often written backward).
 * Their memory, in at most max_sge pieces and in the order of the slab, goes to sge (address and
 * length).  cookie[0] is the address of a request's memory. */
struct rdma_run { unsigned pages, pieces; uint32_t lowest; };   /* lowest: page of the slab */
struct rdma_run rdma_run(const struct far_request *r, unsigned max_pages, unsigned max_sge,
                         struct ibv_sge *sge);

#endif
