/*
 * How much background the device has at a time, so that a demand read need not wait for it.
 *
 * Times are in ticks of the TSC.  sent, done: background pages posted so far, and over.
 */
#ifndef VMRUN_RDMA_PACE_H
#define VMRUN_RDMA_PACE_H

#include "far/rdma/rdma.h"

/* at the end of each turn */
void rdma_pace_turn(struct rdma_pace *p, uint64_t done, uint64_t now);
void rdma_pace_slept(struct rdma_pace *p);
/* a demand read is posted */
void rdma_pace_asked(struct rdma_pace *p, uint64_t done, uint64_t now);
/* a demand read is over */
void rdma_pace_done(struct rdma_pace *p, uint64_t sent, uint64_t now);
/* some of the background was posted */
void rdma_pace_sent(struct rdma_pace *p);
/* how many more pages of a kind may be posted, with `posted` already */
unsigned rdma_pace_room(const struct rdma_pace *p, unsigned posted);

#endif
