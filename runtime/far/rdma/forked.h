/*
 * A forked child: away from its parent's connections.
 */
#ifndef VMRUN_RDMA_FORKED_H
#define VMRUN_RDMA_FORKED_H

#include "far/rdma/rdma.h"

/* far_driver.forked */
bool rdma_forked(struct far_node *n);

#endif
