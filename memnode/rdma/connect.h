/*
 * From a connection request to a connection: events of rdma_cm, and the clock.
 */
#ifndef MEMNODE_RDMA_CONNECT_H
#define MEMNODE_RDMA_CONNECT_H

#include "memnode/rdma/rdma.h"

/* Before the first request.  False: no random numbers are left. */
bool connect_begin(void);
void connection_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
                      const struct rdma_conn_param *param);
/* The clock of all control connections. */
void connections_tick(uint64_t now);

#endif
