/*
 * One connection of rdma_cm: address, route, queue pair, connect.  It never waits.
 */
#ifndef VMRUN_RDMA_LINK_H
#define VMRUN_RDMA_LINK_H

#include "far/rdma/rdma.h"

/* Starts connecting; events drive the rest. */
void rdma_link_start(struct rdma_link *l);
/* Reads all events of a channel and advances its links; returns how many events there were. */
unsigned rdma_link_events(struct rdma_event_channel *channel);
/* Frees all that the link has, whatever its state.  Afterwards the device touches no memory on its
 * behalf, so the memory may be used for something else, and the link's requests may be posted
 * elsewhere. */
void rdma_link_close(struct rdma_link *l);
/* Marks the link as failed; its owner must close it.  The first reason stays. */
__attribute__((format(printf, 3, 4)))
void rdma_link_fail(struct rdma_link *l, enum rdma_failure failure, const char *fmt, ...);
void rdma_link_errno(struct rdma_link *l, int err, const char *doing);
void rdma_link_silent(struct rdma_link *l, unsigned ms);        /* no answer for ms */

#endif
