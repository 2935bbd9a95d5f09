/*
 * How long nothing may end, and when the node is asked whether it is there.
 *
 * Times are by rdma_data.ran.
 */
#ifndef VMRUN_RDMA_SILENCE_H
#define VMRUN_RDMA_SILENCE_H

#include "far/rdma/rdma.h"

/* Nothing has ended for `stall` ms.  A node that hands back is asked soon, by a WRITE of no bytes
 * on the control connection, which its card answers: a RDMA_ASK each time.  If it does not answer,
 * it is RDMA_SILENT.  If it does it is only slow, and has as long as any other: then it is
 * RDMA_STUCK, whatever the control connection says. */
enum rdma_verdict { RDMA_WAIT, RDMA_ASK, RDMA_SILENT, RDMA_STUCK };
enum rdma_verdict rdma_silence(struct rdma_silence *s, bool hands_back, int64_t stall, int64_t ran,
                               unsigned answers);

#endif
