/*
 * Clients of the RDMA server and their leases; see lease.h for the memory.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "common/clock.h"
#include "common/size.h"
#include "account.h"
#include "admission/party.h"
#include "memnode.h"
#include "pool.h"
#include "rdma/client.h"
#include "rdma/connection.h"
#include "rdma/lease.h"

struct client *clients;
static unsigned nclients;
static struct client *leaving;          /* that have ended, but for the worker's part */

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

/* A lease that it asks for waits until the worker has given back what those that leave had. */
void client_room(const struct client *cl, struct node_welcome *w)
{
        uint64_t most = __atomic_load_n(&opt.max_per_client, __ATOMIC_RELAXED), own = 0;

        w->free = pool_left();
        for (const struct client *i = leaving; i; i = i->next) {
                w->free += i->bytes;
                own += i->party == cl->party ? i->bytes : 0;
        }
        w->limit = cl->party ? party_room(cl->party, w->free) + own : w->free;
        if (w->limit > w->free)
                w->limit = w->free;
        if (w->limit > most)
                w->limit = most;
}

int client_may_lease(const struct client *cl, char *why, size_t n)
{
        unsigned asked = 0;

        for (const struct connection *c = connections; c; c = c->next)
                asked += c->client == cl && c->job;
        if (cl->nleases + asked < LEASES_MAX)
                return 0;
        snprintf(why, n, "this client has %u leases, which is the most: ask for larger ones",
                 cl->nleases);
        return NODE_ELIMIT;
}

void client_leases(struct client *cl, struct lease *l, struct node_grant *g)
{
        char a[32];

        l->slab = ++cl->last_slab;
        l->next = cl->leases;
        cl->leases = l;
        cl->nleases++;
        cl->bytes += l->bytes;
        describe(l, g);
        info_("%s leases %s", cl->name, size_text(l->bytes, a));
}

/* In the worker. */
static void attach(struct job *j)
{
        struct client *cl = (struct client *)((char *)j - offsetof(struct client, attach));

        cl->attached = leases_register(cl, cl->coming->verbs);
}

static void attach_done(struct job *j)
{
        struct client *cl = (struct client *)((char *)j - offsetof(struct client, attach));

        cl->device = cl->attached ? cl->coming : NULL;
        cl->coming = NULL;
        cl->gone_at = now_ms();         /* it could not come back meanwhile */
}

/* In the worker: what is registered is ended with the client's other things. */
static void attach_undo(struct job *j) { (void)j; }

void client_attach_stop(struct client *cl)
{
        if (cl->coming)
                worker_drop(&cl->attach);
        cl->coming = NULL;
}

bool client_attach(struct client *cl, struct device *d)
{
        if (cl->device || cl->coming)
                return cl->device;
        cl->coming = d;
        cl->attach = (struct job){
                .run = attach, .done = attach_done, .undo = attach_undo, .owner = cl
        };
        worker_add(&cl->attach);
        return false;
}

struct lease *client_release(struct client *cl, uint64_t slab, char *why, size_t n)
{
        struct lease **p = &cl->leases, *l;

        while (*p && (*p)->slab != slab)
                p = &(*p)->next;
        l = *p;
        if (!l) {
                snprintf(why, n, "this client has no slab %llu", (unsigned long long)slab);
                return NULL;
        }
        *p = l->next;
        cl->nleases--;
        cl->bytes -= l->bytes;
        return l;
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
        cl->device = NULL;
        return leases_deregister(cl);
}

/* In the worker. */
static void end(struct job *j)
{
        struct client *cl = (struct client *)((char *)j - offsetof(struct client, end));

        if (leases_deregister(cl))
                account_close(cl->account);
        for (struct lease *l = cl->leases, *next; l; l = next) {
                next = l->next;
                lease_free(l);
        }
}

static void end_done(struct job *j)
{
        struct client *cl = (struct client *)((char *)j - offsetof(struct client, end));
        struct client **p = &leaving;

        while (*p != cl)
                p = &(*p)->next;
        *p = cl->next;
        if (cl->party)
                party_put(cl->party);
        explicit_bzero(cl, sizeof(*cl));
        free(cl);
}

void client_end(struct client *cl)
{
        connection_end_data(cl);
        connection_disown(cl);
        unlist(cl);
        members_free(&cl->members);
        cl->next = leaving;
        leaving = cl;
        cl->end = (struct job){ .run = end, .done = end_done, .owner = cl };
        worker_add(&cl->end);
}

void client_loses(const struct client *cl)
{
        char a[32];

        warnx_("%s loses the %s that it has here", cl->name, size_text(cl->bytes, a));
}

void client_tick(uint64_t now)
{
        uint32_t grace = __atomic_load_n(&opt.grace_ms, __ATOMIC_RELAXED);

        for (struct client *cl = clients, *next; cl; cl = next) {
                next = cl->next;
                if (cl->controls || cl->coming || now - cl->gone_at < grace)
                        continue;
                warnx_("%s has been gone for %u s: its memory is free", cl->name, grace / 1000);
                atomic_fetch_add_explicit(&rdma_counts.abandoned, 1, memory_order_relaxed);
                client_end(cl);
        }
        count_clients();
}
