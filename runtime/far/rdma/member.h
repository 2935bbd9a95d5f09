/*
 * Joins with connections of its own, for a forked child and for a program after execve.
 */
#ifndef VMRUN_RDMA_MEMBER_H
#define VMRUN_RDMA_MEMBER_H

#include "far/rdma/rdma.h"

/* far_driver.cut */
int rdma_cut(struct far_node *n, const struct far_range *dead, unsigned count, unsigned limit_ms,
             char why[FAR_WHY]);
/* far_driver.keep; and open(), if n->inherited has the data of keep(). */
bool rdma_keep(const struct far_node *n, struct far_kept_node *k);
int rdma_take_over(struct rdma_node *rn, const char *rest, char why[FAR_WHY]);
/* far_place.word: a slab's number, its address, and this: its key, with the number of restarts for
 * which address and key are right. */
static inline uint64_t rdma_key_word(uint32_t rkey, uint32_t restarts)
{
        return (uint64_t)restarts << 32 | rkey;
}
/* far_driver.use */
int rdma_use(struct far_node *n, struct far_place *place, uint32_t pages);
/* In a forked child, before attach() registers memory: connects as another member of the client.
 * If the node hands back, it may be down afterwards, and its device not open. */
int rdma_rejoin(struct rdma_node *rn, char why[FAR_WHY]);

#endif
