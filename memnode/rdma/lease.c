#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/size.h"
#include "account.h"
#include "memnode.h"
#include "pool.h"
#include "rdma/lease.h"

static struct ibv_mr *registration(const struct client *cl, char *at, uint64_t bytes)
{
        return ibv_reg_mr(cl->pd, at, bytes,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_WRITE);
}

static int explain(int err, const struct client *cl, uint64_t bytes, char *why, size_t n)
{
        char a[32], b[32];

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
                         "%s is free, but not %s in one piece, or it is kept for others: ask for "
                         "less", size_text(pool_left(), b), size_text(bytes, a));
        return err == -EDQUOT ? NODE_ELIMIT : NODE_ENOSPC;
}

int lease_make(const struct client *cl, uint64_t bytes, bool *claimed, struct lease **made,
               char *why, size_t n)
{
        char a[32], *at;
        int err = *claimed ? 0 : account_claim(cl->account, bytes);

        if (!err)
                err = account_try(cl->account, bytes, &at);
        *claimed = err == -EAGAIN;
        if (err)
                return *claimed ? err : explain(err, cl, bytes, why, n);
        struct lease *l = malloc(sizeof(*l));
        if (!l) {
                snprintf(why, n, "the node has no memory left");
                account_give(cl->account, at, bytes);
                return NODE_ELIMIT;
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
        *l = (struct lease){ 0, at, bytes, mr, NULL };
        atomic_fetch_add_explicit(&rdma_counts.leases, 1, memory_order_relaxed);
        *made = l;
        return 0;
}

/* True: nothing can reach the memory of the lease any more. */
static bool deregister(const struct client *cl, struct lease *l)
{
        int err = l->mr ? ibv_dereg_mr(l->mr) : 0;

        if (err)
                warnx_("%s: a registration cannot be ended: %s; its memory is not used again",
                       cl->name, strerror(err));
        else
                l->mr = NULL;
        return !err;
}

void lease_free(struct lease *l)
{
        atomic_fetch_sub_explicit(&rdma_counts.leases, 1, memory_order_relaxed);
        free(l);
}

void lease_end(const struct client *cl, struct lease *l)
{
        if (deregister(cl, l))
                account_give(cl->account, l->at, l->bytes);
        lease_free(l);
}

bool leases_deregister(struct client *cl)
{
        bool clean = true;

        for (struct lease *l = cl->leases; l; l = l->next)
                clean &= deregister(cl, l);
        if (cl->pd)
                ibv_dealloc_pd(cl->pd);
        cl->pd = NULL;
        return clean;
}

bool leases_register(struct client *cl, struct ibv_context *verbs)
{
        cl->pd = ibv_alloc_pd(verbs);
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
        leases_deregister(cl);
        return false;
}
