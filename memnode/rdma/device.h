/*
 * The devices that clients come through.
 */
#ifndef MEMNODE_RDMA_DEVICE_H
#define MEMNODE_RDMA_DEVICE_H

#include "memnode/rdma/rdma.h"

/* The device of a context, made known on first use; NULL with a warning. */
struct device *device_get(struct ibv_context *verbs);
struct device *device_at(unsigned i);   /* NULL after the last */
void device_close_all(void);

#endif
