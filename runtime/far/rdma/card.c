#include "base/options.h"
#include "far/rdma/card.h"

bool rdma_card_wanted(const struct rdma_card *c)
{
        return c && (opt.direct == DIRECT_ON || (opt.direct == DIRECT_AUTO && c->automatic)) &&
               __builtin_cpu_supports("sse4.2");
}

void rdma_card_look(struct rdma_node *rn)
{
        const struct rdma_device *d = &rn->dev;

        if (rn->card)
                return;
        rn->card = rdma_mlx5.is(d) ? &rdma_mlx5 : rdma_rxe.is(d) ? &rdma_rxe : NULL;
        atomic_store_explicit(&rn->direct_wanted, rdma_card_wanted(rn->card),
                              memory_order_relaxed);
}

bool rdma_direct_wanted(const struct far_node *n)
{
        const struct rdma_node *rn = n->data;

        return atomic_load_explicit(&rn->direct_wanted, memory_order_relaxed);
}
