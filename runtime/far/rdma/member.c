/*
 * A process that joins a lease of another process of its tree: a forked child, or a program that a
 * process of the tree executed.
 *
 * It joins as another member of that process's client (nodeproto.h): by id and secret, over
 * connections of its own.  Addresses and keys of slabs that other members leased hold for it, too,
 * because the queue pairs of all members are in one protection domain; but see find.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "far/rdma/address.h"
#include "far/rdma/control.h"
#include "far/rdma/data.h"
#include "far/rdma/find.h"
#include "far/rdma/member.h"

#define DOWN    "the node is down: its connections are being made again"
#define JOIN_MS 1000                    /* the longest wait for a node that hands back */

/* The lease's data for the next program.  Like a forked child, that program connects when it first
 * needs a slab. */
struct kept {
        union rdma_sockaddr to, from;
        struct ibv_device_attr attr;
        uint64_t limit, id;
        uint32_t depth, grace_ms;
        bool keeps;
        uint8_t secret[NODE_SECRET];
        char name[NODE_NAME_MAX];
};
_Static_assert(sizeof(struct kept) <= FAR_KEPT, "it fits what goes over execve");

bool rdma_keep(const struct far_node *n, struct far_kept_node *k)
{
        const struct rdma_node *rn = n->data;
        struct kept *to = (struct kept *)k->data;

        *to = (struct kept){ .to = rn->to,
                             .from = rn->from,
                             .attr = rn->dev.attr,
                             .limit = rn->limit,
                             .id = rn->control.id,
                             .depth = rn->depth,
                             .grace_ms = rn->grace_ms,
                             .keeps = rn->keeps };
        memcpy(to->secret, rn->control.secret, sizeof(to->secret));
        memcpy(to->name, rn->name, sizeof(to->name));
        return to->id != 0;
}

int rdma_take_over(struct rdma_node *rn, const char *rest, char why[FAR_WHY])
{
        const struct kept *k = (const struct kept *)rn->n->inherited->data;
        uint16_t port;

        rn->to = k->to;
        rn->from = k->from;
        rn->dev.attr = k->attr;
        rn->limit = k->limit;
        rn->depth = k->depth;
        rn->grace_ms = k->grace_ms;
        rn->keeps = k->keeps;
        rn->control.id = k->id;
        memcpy(rn->control.secret, k->secret, sizeof(k->secret));
        memcpy(rn->name, k->name, sizeof(k->name));
        return rdma_parse_url(rest, rn->host, &port, why);
}

int rdma_rejoin(struct rdma_node *rn, char why[FAR_WHY])
{
        unsigned limit_ms = rn->set.connect_timeout_ms;
        int err = rdma_control_prepare(rn, why);

        if (rn->n->hands_back && limit_ms > JOIN_MS)
                limit_ms = JOIN_MS;
        err = err ? err : rdma_data_open(rn, now_ms() + limit_ms, why);
        return rn->n->hands_back && err == -ETIMEDOUT && !rn->data.lost ? 0 : err;
}

/* A slab that another process leased, maybe before memnode was restarted. */
static void add(struct rdma_node *rn, struct rdma_grant *g)
{
        struct rdma_control *c = &rn->control;
        union rdma_message a, m = rdma_find_question(g);

        pthread_mutex_lock(&c->lock);
        /* As in lease(): under the lock, so that a thread that finds the node lost sees all
         * grants. */
        g->next = atomic_load_explicit(&rn->grants, memory_order_relaxed);
        atomic_store_explicit(&rn->grants, g, memory_order_release);
        if (rdma_control_is_up(c) && rdma_find_stale(c, g) &&
            rdma_control_ask(rn, &m, now_ms() + FIND_MS, &a) == 0)
                rdma_find_take(c, g, &a);
        pthread_mutex_unlock(&c->lock);
}

/* place->word: as lease() left it. */
int rdma_use(struct far_node *n, struct far_place *place, uint32_t pages)
{
        struct rdma_node *rn = n->data;
        struct rdma_grant *g = atomic_load_explicit(&rn->grants, memory_order_relaxed);

        while (g && g->slab != place->word[0])
                g = g->next;
        if (!g) {
                g = malloc(sizeof(*g));
                if (!g)
                        return -ENOMEM;
                *g = (struct rdma_grant){ .slab = place->word[0],
                                          .address = place->word[1],
                                          .rkey = (uint32_t)place->word[2],
                                          .restarts = (uint32_t)(place->word[2] >> 32),
                                          .bytes = (uint64_t)pages * PAGE_SIZE };
                add(rn, g);
        }
        place->data = g;
        return 0;
}

int rdma_cut(struct far_node *n, const struct far_range *dead, unsigned count, unsigned limit_ms,
             char why[FAR_WHY])
{
        struct rdma_node *rn = n->data;
        struct rdma_control *c = &rn->control;
        int64_t deadline = now_ms() + limit_ms;
        int err = 0;

        if (rdma_is_down(n)) {
                snprintf(why, FAR_WHY, "%s", DOWN);
                return -ENOLINK;
        }
        if (!lock_within(&c->lock, limit_ms)) {         /* while a lease waits for its answer */
                snprintf(why, FAR_WHY, "another request to memnode is under way");
                return -EBUSY;
        }
        for (unsigned i = 0; i < count && !err; ) {
                union rdma_message a, m = { .cut = { .h = { NODE_MAGIC, NODE_VERSION, NODE_CUT,
                                                            sizeof(struct node_cut), 0 } } };
                for (; i < count && m.cut.count < NODE_RANGES; i++)
                        m.cut.range[m.cut.count++] =
                                (struct node_range){ dead[i].first, dead[i].last };
                err = rdma_control_ask(rn, &m, deadline, &a);
                if (err == -ENOLINK && c->gone)
                        err = -ESTALE;
                if (err)
                        snprintf(why, FAR_WHY, "%s",
                                 err == -ESTALE                     ? c->why
                                 : err == -ENOLINK && n->hands_back ? DOWN
                                                                    : "memnode does not answer");
                else if (a.h.type == NODE_REFUSED)
                        snprintf(why, FAR_WHY, "memnode refuses: %.*s", NODE_TEXT_MAX,
                                 a.refused.text);
                if (!err && a.h.type != NODE_DONE)
                        err = -EPROTO;
        }
        pthread_mutex_unlock(&c->lock);
        return err;
}
