/*
 * How long is too long: a device whose queue pairs complete nothing, and a node that may be gone.
 */
#include "far/rdma/silence.h"

/* a QP with work that completes nothing for this time is broken, even if its device reports no
 * error */
#define STALL_MS      3000
/* of a node that hands back */
#define STALL_SOON_MS 500
#define ASK_MS        250

enum rdma_verdict rdma_silence(struct rdma_silence *s, bool hands_back, int64_t stall, int64_t ran,
                               unsigned answers)
{
        if (stall > STALL_MS)
                return RDMA_STUCK;
        if (!hands_back || stall <= STALL_SOON_MS) {
                s->asking = false;
                return RDMA_WAIT;
        }
        if (s->asking && ran - s->asked < ASK_MS)
                return RDMA_WAIT;
        if (s->asking && answers == s->answers)
                return RDMA_SILENT;
        *s = (struct rdma_silence){ .asking = true, .asked = ran, .answers = answers };
        return RDMA_ASK;
}
