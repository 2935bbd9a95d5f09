/*
 * Where slabs are after memnode was restarted with them.  All with the lock of control held.
 */
#ifndef VMRUN_RDMA_FIND_H
#define VMRUN_RDMA_FIND_H

#include "far/rdma/rdma.h"

#define FIND_MS 1500                    /* for memnode's answer, as for an attempt to connect */
/* The connection is made: takes an answer that has come.  True: c->finding is to be asked for now;
 * NULL: all slabs are known.  False: an answer is under way, or the link has failed. */
bool rdma_find_next(struct rdma_node *rn);
union rdma_message rdma_find_question(const struct rdma_grant *g);
/* Takes memnode's answer about g.  False: it does not have the slab. */
bool rdma_find_take(const struct rdma_control *c, struct rdma_grant *g,
                    const union rdma_message *a);
/* Its address and key were right before memnode was restarted. */
bool rdma_find_stale(const struct rdma_control *c, const struct rdma_grant *g);

#endif
