/*
 * Clients of the RDMA server and their leases.
 *
 * [I] Memory goes back to the pool only when no network card can reach it any more.  First the data
 * connections of the client end, then the registration; then the pool gets the memory and zeroes it
 * before it is given out again.  A registration that cannot be ended keeps its memory for as long
 * as memnode runs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "common/secret.h"
#include "common/size.h"
#include "pool.h"
#include "rdma/rdma.h"

struct lease {
        uint64_t slab;
        char *at;
        uint64_t bytes;
        struct ibv_mr *mr;
        struct lease *next;
};

struct client *clients;
static unsigned nclients;

static void count_clients(void)
{
        unsigned gone = 0;
        for (struct client *cl = clients; cl; cl = cl->next)
                gone += !cl->controls;
        atomic_store_explicit(&rdma_counts.clients, nclients, memory_order_relaxed);
        atomic_store_explicit(&rdma_counts.gone, gone, memory_order_relaxed);
}

/* Makes an id that no client uses, and a secret that cannot be guessed. */
static bool make_names(struct client *cl)
{
        do {
                if (getrandom(&cl->id, sizeof(cl->id), 0) != sizeof(cl->id))
                        return false;
                for (struct client *i = clients; i; i = i->next)
                        if (i->id == cl->id)
                                cl->id = 0;
        } while (!cl->id);
        return getrandom(cl->secret, sizeof(cl->secret), 0) == sizeof(cl->secret);
}

struct client *client_new(struct device *d, const char *name, char *why, size_t n,
                          enum node_error *error)
{
        char account[NODE_NAME_MAX + 8];
        struct client *cl;

        *error = NODE_EBUSY;
        if (nclients == CLIENTS_MAX) {
                snprintf(why, n, "%u clients are served already, which is the most: try later",
                         nclients);
                return NULL;
        }
        *error = NODE_EINTERNAL;
        cl = calloc(1, sizeof(*cl));
        if (!cl || !make_names(cl)) {
                snprintf(why, n, "no memory or no random numbers are left on the node");
                goto out;
        }
        snprintf(cl->name, sizeof(cl->name), "%s", name);
        snprintf(account, sizeof(account), "rdma %s", name);
        cl->device = d;
        cl->pd = ibv_alloc_pd(d->verbs);
        if (!cl->pd) {
                snprintf(why, n, "the node's device has no protection domain left: %s",
                         strerror(errno));
                goto out;
        }
        cl->account = account_open(account);
        if (!cl->account) {
                snprintf(why, n, "the node has too many clients: try later");
                *error = NODE_EBUSY;
                ibv_dealloc_pd(cl->pd);
                goto out;
        }
        cl->next = clients;
        clients = cl;
        nclients++;
        count_clients();
        return cl;
out:
        free(cl);
        return NULL;
}

struct client *client_find(uint64_t id, const uint8_t secret[NODE_SECRET])
{
        for (struct client *cl = clients; cl; cl = cl->next)
                if (cl->id == id && secret_same(cl->secret, secret, NODE_SECRET))
                        return cl;
        return NULL;
}

int client_lease(struct client *cl, uint64_t bytes, struct node_grant *g, char *why, size_t n)
{
        char a[32], b[32];
        struct lease *l = malloc(sizeof(*l));
        char *at;

        if (!l || cl->nleases == LEASES_MAX) {
                snprintf(why, n,
                         l ? "this client has %u leases, which is the most: ask for larger ones"
                           : "the node has no memory left",
                         cl->nleases);
                free(l);
                return NODE_ELIMIT;
        }
        int err = account_take(cl->account, bytes, &at);
        if (err) {
                if (err == -EDQUOT)
                        snprintf(why, n,
                                 "%s more is beyond the %s that one client may have here "
                                 "(--max-per-client)",
                                 size_text(bytes, a), size_text(account_limit(cl->account), b));
                else if (pool_left() < bytes)
                        snprintf(why, n, "%s is wanted and %s is free", size_text(bytes, a),
                                 size_text(pool_left(), b));
                else
                        snprintf(why, n, "%s is free, but not %s in one piece: ask for less",
                                 size_text(pool_left(), b), size_text(bytes, a));
                free(l);
                return err == -EDQUOT ? NODE_ELIMIT : NODE_ENOSPC;
        }
        struct ibv_mr *mr = ibv_reg_mr(cl->pd, at, bytes,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                               IBV_ACCESS_REMOTE_WRITE);
        if (!mr) {
                snprintf(why, n, "the node cannot register %s: %s%s", size_text(bytes, a),
                         strerror(errno),
                         errno == ENOMEM ? ": its memory is short, or its memlock limit (`ulimit "
                                           "-l`) is too low"
                                         : "");
                warnx_("%s: cannot register %s: %s", cl->name, a, strerror(errno));
                account_give(cl->account, at, bytes);
                free(l);
                return NODE_EINTERNAL;
        }
        *l = (struct lease){ ++cl->last_slab, at, bytes, mr, cl->leases };
        cl->leases = l;
        cl->nleases++;
        atomic_fetch_add_explicit(&rdma_counts.leases, 1, memory_order_relaxed);
        g->slab = l->slab;
        g->address = (uint64_t)(uintptr_t)at;
        g->bytes = bytes;
        g->rkey = mr->rkey;
        info_("%s leases %s", cl->name, size_text(bytes, a));
        return 0;
}

/* True: nothing can reach the memory of the lease any more. */
static bool deregister(struct client *cl, struct lease *l)
{
        int err = ibv_dereg_mr(l->mr);
        if (err)
                warnx_("%s: a registration cannot be ended: %s; its memory is not used again",
                       cl->name, strerror(err));
        atomic_fetch_sub_explicit(&rdma_counts.leases, 1, memory_order_relaxed);
        return !err;
}

int client_release(struct client *cl, uint64_t slab, char *why, size_t n)
{
        struct lease **p = &cl->leases, *l;

        while (*p && (*p)->slab != slab)
                p = &(*p)->next;
        l = *p;
        if (!l) {
                snprintf(why, n, "this client has no slab %llu", (unsigned long long)slab);
                return NODE_EUNKNOWN;
        }
        *p = l->next;
        cl->nleases--;
        if (deregister(cl, l))
                account_give(cl->account, l->at, l->bytes);
        free(l);
        return 0;
}

void client_end(struct client *cl)
{
        bool clean = true;

        connection_end_data(cl);
        connection_disown(cl);
        for (struct lease *l = cl->leases, *next; l; l = next) {
                next = l->next;
                clean &= deregister(cl, l);
                free(l);
        }
        ibv_dealloc_pd(cl->pd);
        if (clean)
                account_close(cl->account);
        for (struct client **p = &clients; *p; p = &(*p)->next) {
                if (*p == cl) {
                        *p = cl->next;
                        break;
                }
        }
        nclients--;
        count_clients();
        members_free(&cl->members);
        explicit_bzero(cl, sizeof(*cl));
        free(cl);
}

void client_tick(uint64_t now)
{
        uint32_t grace = __atomic_load_n(&opt.grace_ms, __ATOMIC_RELAXED);

        for (struct client *cl = clients, *next; cl; cl = next) {
                next = cl->next;
                if (cl->controls || now - cl->gone_at < grace)
                        continue;
                warnx_("%s has been gone for %u s: its memory is free", cl->name, grace / 1000);
                client_end(cl);
        }
        count_clients();
}
