/*
 * Cards whose queue pairs kern can drive by itself (direct.c): what differs between them.
 *
 * [I] In this order, for the queue pairs of a node: begin(); of each make_cq(), make_qp(), show();
 * all queue pairs are destroyed (rdma_link_close()); end().  end() is called whatever came of the
 * others, but for a begin() that failed.
 */
#ifndef VMRUN_RDMA_CARD_H
#define VMRUN_RDMA_CARD_H

#include "far/rdma/rdma.h"

struct far_direct;

struct rdma_card {
        bool automatic;                 /* with --direct auto, too */
        bool exit_rings;                /* the doorbell is an exit: ring() */
        bool (*is)(const struct rdma_device *d);
        /* Could begin() do it?  False, with `why`.  Any thread, while the device is open. */
        bool (*can)(const struct rdma_device *d, char why[FAR_WHY]);
        /* False, with `why`: kern cannot drive the queue pairs. */
        bool (*begin)(struct rdma_node *rn, char why[FAR_WHY]);
        /* In place of ibv_create_cq() and rdma_create_qp(), for the link of a queue.  As these:
         * NULL, or not 0, with errno. */
        struct ibv_cq *(*make_cq)(struct rdma_link *l);
        int (*make_qp)(struct rdma_link *l, struct ibv_qp_init_attr *attr);
        /* Shows the rings of queue i to the VM, and says in *nic where kern finds them.  False,
         * with `why`. */
        bool (*show)(struct rdma_node *rn, const struct far_direct *d, unsigned i, struct nic *nic,
                     char why[FAR_WHY]);
        /* Takes from the VM what show() has given it, and frees all else. */
        void (*end)(struct rdma_node *rn, const struct far_direct *d);
        /* The doorbell of queue i.  Any thread.  0; -EACCES: the kernel does not let it. */
        int (*ring)(const struct rdma_node *rn, unsigned i);
};

extern const struct rdma_card rdma_rxe, rdma_mlx5;

/* The node's device was opened: which card it is. */
void rdma_card_look(struct rdma_node *rn);
/* Is kern to drive such cards? */
bool rdma_card_wanted(const struct rdma_card *c);
/* Of struct far_driver. */
bool rdma_direct_wanted(const struct far_node *n);

/* The number of a queue's link. */
static inline unsigned rdma_card_queue(const struct rdma_link *l)
{
        return (unsigned)(l - l->node->direct.link);
}

#endif
