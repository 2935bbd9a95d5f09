/*
 * Where slabs are after memnode was restarted with its leases (--resume): at other addresses, under
 * other keys.
 *
 * When a control connection is made, all grants that are older than the last restart are asked for,
 * one after the other, before the connection counts as up: until then no data connection is made.
 * A slab that this process learns of later is asked for at once.  If that fails, queue.c sends
 * nothing there, but counts the connections as broken, and the next control connection asks for the
 * slab.
 */
#include "far/rdma/find.h"
#include "far/rdma/link.h"

union rdma_message rdma_find_question(const struct rdma_grant *g)
{
        return (union rdma_message){ .find = { .h = { NODE_MAGIC, NODE_VERSION, NODE_FIND,
                                                      sizeof(struct node_find), 0 },
                                               .slab = g->slab } };
}

bool rdma_find_take(const struct rdma_control *c, struct rdma_grant *g,
                    const union rdma_message *a)
{
        if (a->h.type != NODE_GRANT || a->grant.slab != g->slab || a->grant.bytes != g->bytes)
                return false;
        /* Relaxed: see struct rdma_grant. */
        atomic_store_explicit(&g->address, a->grant.address, memory_order_relaxed);
        atomic_store_explicit(&g->rkey, a->grant.rkey, memory_order_relaxed);
        atomic_store_explicit(&g->restarts, c->link.restarts, memory_order_relaxed);
        return true;
}

bool rdma_find_stale(const struct rdma_control *c, const struct rdma_grant *g)
{
        return atomic_load_explicit(&g->restarts, memory_order_relaxed) != c->link.restarts;
}

static struct rdma_grant *next_stale(const struct rdma_node *rn)
{
        struct rdma_grant *g = atomic_load_explicit(&rn->grants, memory_order_relaxed);

        while (g && !rdma_find_stale(&rn->control, g))
                g = g->next;
        return g;
}

bool rdma_find_next(struct rdma_node *rn)
{
        struct rdma_control *c = &rn->control;

        if (c->finding && !c->answered)
                return false;
        if (c->finding && !rdma_find_take(c, c->finding, &c->answer)) {
                rdma_link_fail(&c->link, FAIL_UNKNOWN,
                               "its memnode was restarted, and does not have all of this program's "
                               "memory");
                return false;
        }
        c->answered = false;
        c->finding = next_stale(rn);
        return true;
}
