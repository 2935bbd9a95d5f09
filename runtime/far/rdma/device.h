/*
 * The device: its protection domain, channels, registered memory, hidden descriptors.
 */
#ifndef VMRUN_RDMA_DEVICE_H
#define VMRUN_RDMA_DEVICE_H

#include "far/rdma/rdma.h"

/* Opens the device to which the first connection was resolved. */
int rdma_device_open(struct rdma_device *d, struct rdma_cm_id *id, char why[FAR_WHY]);
void rdma_device_close(struct rdma_device *d);
/* Registers the memory of m->base and m->len, or a pool; the device is open. */
int rdma_memory_open(struct rdma_memory *m, struct rdma_device *d, char why[FAR_WHY]);
void rdma_memory_close(struct rdma_memory *m);
/* Event channels whose descriptor the program does not see, and that never wait. */
struct rdma_event_channel *rdma_channel_open(char why[FAR_WHY]);
void rdma_channel_close(struct rdma_event_channel *ch);

#endif
