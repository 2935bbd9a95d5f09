/*
 * Messages on control connections.  A function that may end the connection returns whether it still
 * exists.
 */
#ifndef MEMNODE_RDMA_CONTROL_H
#define MEMNODE_RDMA_CONTROL_H

#include "memnode/rdma/rdma.h"

/* Before accept: queue pair, buffers, receives.  0 or -errno. */
int control_setup(struct connection *c);
void control_completions(struct device *d);     /* the device's channel has something */
bool control_tick(struct connection *c, uint64_t now);
bool control_goodbye(struct connection *c);     /* memnode ends */
/* Draining waits for its member. */
bool control_waits(const struct connection *c);
/* ends a connection that is closing, if all messages sent have arrived */
bool control_close(struct connection *c);

#endif
