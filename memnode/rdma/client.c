/*
 * Clients of the RDMA server and their leases.
 *
 * [I] Memory goes back to the pool only when no network card can reach it any more.  First the data
 * connections of the client end, then the registration; then the pool gets the memory and zeroes it
 * before it is given out again.  A registration that cannot be ended keeps its memory for as long
 * as memnode runs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "common/size.h"
#include "account.h"
#include "admission/party.h"
#include "memnode.h"
#include "pool.h"
#include "rdma/client.h"
#include "rdma/connection.h"

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

/* Makes an id that no client uses. */
static bool make_id(struct client *cl)
{
        do {
                if (getrandom(&cl->id, sizeof(cl->id), 0) != sizeof(cl->id))
                        return false;
                for (struct client *i = clients; i; i = i->next)
                        if (i != cl && i->id == cl->id)
                                cl->id = 0;
        } while (!cl->id);
        return true;
}

/* With an account, and in the list. */
static struct client *add(const char *name, struct party *party, char *why, size_t n,
                          enum node_error *error)
{
        char account[NODE_NAME_MAX + 8];
        struct client *cl = NULL;

        *error = NODE_EBUSY;
        if (nclients == CLIENTS_MAX) {
                snprintf(why, n, "%u clients are served already, which is the most: try later",
                         nclients);
                return NULL;
        }
        cl = calloc(1, sizeof(*cl));
        if (!cl) {
                snprintf(why, n, "no memory is left on the node");
                *error = NODE_EINTERNAL;
                return NULL;
        }
        snprintf(cl->name, sizeof(cl->name), "%s", name);
        snprintf(account, sizeof(account), "rdma %s", name);
        cl->account = account_open(account, party);
        if (!cl->account) {
                snprintf(why, n, "there are too many clients of %s, or of all: try later",
                         party ? party_name(party) : "this node");
                free(cl);
                return NULL;
        }
        cl->party = party ? party_hold(party) : NULL;
        cl->next = clients;
        clients = cl;
        nclients++;
        count_clients();
        return cl;
}

struct client *client_new(struct device *d, const char *name, struct party *party, char *why,
                          size_t n, enum node_error *error)
{
        struct client *cl = add(name, party, why, n, error);

        if (!cl)
                return NULL;
        *error = NODE_EINTERNAL;
        cl->device = d;
        cl->pd = ibv_alloc_pd(d->verbs);
        if (!cl->pd)
                snprintf(why, n, "the node's device has no protection domain left: %s",
                         strerror(errno));
        else if (!make_id(cl))
                snprintf(why, n, "no random numbers are left on the node");
        else
                return cl;
        client_end(cl);
        return NULL;
}

struct client *client_taken_over(const char *name, struct party *party, char *why, size_t n)
{
        enum node_error error;

        return add(name, party, why, n, &error);
}

struct client *client_find(uint64_t id)
{
        struct client *cl = clients;

        while (cl && cl->id != id)
                cl = cl->next;
        return cl;
}

static struct ibv_mr *registration(const struct client *cl, char *at, uint64_t bytes)
{
        return ibv_reg_mr(cl->pd, at, bytes,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_WRITE);
}

static void describe(const struct lease *l, struct node_grant *g)
{
        g->slab = l->slab;
        g->address = (uint64_t)(uintptr_t)l->at;
        g->bytes = l->bytes;
        g->rkey = l->mr->rkey;
}

int client_find_slab(const struct client *cl, uint64_t slab, struct node_grant *g, char *why,
                     size_t n)
{
        for (const struct lease *l = cl->leases; l; l = l->next)
                if (l->slab == slab) {
                        describe(l, g);
                        return 0;
                }
        snprintf(why, n, "this client has no slab %llu", (unsigned long long)slab);
        return NODE_EUNKNOWN;
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
                                 "(--max-per-client, or its quota)",
                                 size_text(bytes, a), size_text(account_limit(cl->account), b));
                else if (pool_left() < bytes)
                        snprintf(why, n, "%s is wanted and %s is free", size_text(bytes, a),
                                 size_text(pool_left(), b));
                else
                        snprintf(why, n,
                                 "%s is free, but not %s in one piece, or it is kept for others: "
                                 "ask for less",
                                 size_text(pool_left(), b), size_text(bytes, a));
                free(l);
                return err == -EDQUOT ? NODE_ELIMIT : NODE_ENOSPC;
        }
        struct ibv_mr *mr = registration(cl, at, bytes);
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
        describe(l, g);
        info_("%s leases %s", cl->name, size_text(bytes, a));
        return 0;
}

/* True: nothing can reach the memory of the lease any more. */
static bool deregister(struct client *cl, struct lease *l)
{
        int err = l->mr ? ibv_dereg_mr(l->mr) : 0;

        if (err)
                warnx_("%s: a registration cannot be ended: %s; its memory is not used again",
                       cl->name, strerror(err));
        else
                l->mr = NULL;
        return !err;
}

static void forget(struct lease *l)
{
        atomic_fetch_sub_explicit(&rdma_counts.leases, 1, memory_order_relaxed);
        free(l);
}

/* Of a client without connections: nothing reaches its memory any more. */
static bool deregister_all(struct client *cl)
{
        bool clean = true;

        for (struct lease *l = cl->leases; l; l = l->next)
                clean &= deregister(cl, l);
        if (cl->pd)
                ibv_dealloc_pd(cl->pd);
        cl->pd = NULL;
        cl->device = NULL;
        return clean;
}

bool client_attach(struct client *cl, struct device *d)
{
        if (cl->device)
                return true;
        cl->device = d;
        cl->pd = ibv_alloc_pd(d->verbs);
        bool made = cl->pd != NULL;
        for (struct lease *l = cl->leases; l && made; l = l->next) {
                l->mr = registration(cl, l->at, l->bytes);
                made = l->mr != NULL;
        }
        if (made)
                return true;
        warnx_("%s cannot be served yet: what it has here cannot be registered: %s: free some "
               "memory on this host, or raise the memlock limit (`ulimit -l`)",
               cl->name, strerror(errno));
        deregister_all(cl);
        return false;
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
        forget(l);
        return 0;
}

static void unlist(const struct client *cl)
{
        for (struct client **p = &clients; *p; p = &(*p)->next) {
                if (*p == cl) {
                        *p = cl->next;
                        break;
                }
        }
        nclients--;
        count_clients();
}

bool client_detach(struct client *cl)
{
        unlist(cl);
        return deregister_all(cl);
}

void client_end(struct client *cl)
{
        connection_end_data(cl);
        connection_disown(cl);
        if (deregister_all(cl))
                account_close(cl->account);
        for (struct lease *l = cl->leases, *next; l; l = next) {
                next = l->next;
                forget(l);
        }
        unlist(cl);
        members_free(&cl->members);
        if (cl->party)
                party_put(cl->party);
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
