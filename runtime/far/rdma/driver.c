/*
 * The driver for rdma://HOST[:PORT]: memory of a memnode, over verbs.  See rdma.h for its parts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/message.h"
#include "common/size.h"
#include "far/rdma/card.h"
#include "far/rdma/address.h"
#include "far/rdma/control.h"
#include "far/rdma/data.h"
#include "far/rdma/device.h"
#include "far/rdma/direct.h"
#include "far/rdma/forked.h"
#include "far/rdma/member.h"
#include "far/rdma/recover.h"
#include "far/rdma/settings.h"
#include "far/rdma/words.h"
#include "far/sum.h"

static void rdma_close(struct far_node *n)
{
        struct rdma_node *rn = n->data;

        /* A forked child that has never used the node (forked.c): nothing of it is open. */
        if (!rn->control.channel && rn->control.id)
                return;
        /* GOODBYE first: it tells memnode that the end of the data connections is no failure. */
        if (rn->control.channel)
                rdma_control_close(rn);
        rdma_data_close(rn);
        rdma_memory_close(&rn->mem);
        rdma_device_close(&rn->dev);
        for (struct rdma_grant *g = atomic_load(&rn->grants), *next; g; g = next) {
                next = g->next;
                free(g);
        }
        pthread_mutex_destroy(&rn->control.lock);
        if (n->direct)                  /* the process ends, and a vCPU may be about to ring */
                return;
        free(rn);
        n->data = NULL;
}

static int connect_first(struct rdma_node *rn, const char *rest, char why[FAR_WHY])
{
        int64_t deadline = now_ms() + rn->set.connect_timeout_ms;
        int err = rdma_control_open(rn, rest, deadline, why);

        explicit_bzero(&rn->set.key, sizeof(rn->set.key));      /* from here on: control.secret */
        return err ? err : rdma_data_open(rn, deadline, why);
}

static int rdma_check(const struct node_option *o, const char *rest, char why[FAR_WHY])
{
        char host[RDMA_HOST_MAX];
        uint16_t port;

        (void)o;
        return rdma_parse_url(rest, host, &port, why);
}

static int rdma_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        struct rdma_node *rn = calloc(1, sizeof(*rn));

        if (!rn) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        rn->n = n;
        n->data = rn;
        pthread_mutex_init(&rn->control.lock, NULL);
        int err = rdma_settings(n, &rn->set, why);
        if (!err)
                err = n->inherited ? rdma_take_over(rn, rest, why) : connect_first(rn, rest, why);
        if (!err && rn->limit < PAGE_SIZE) {
                snprintf(why, FAR_WHY,
                         "all of its memory is leased: end other programs, or give its memnode "
                         "more by --size");
                err = -ENOSPC;
        }
        if (err) {
                rdma_close(n);
                return err;
        }
        n->fences = true;
        n->unit = 1;
        n->pages =
                (rn->set.size && rn->set.size < rn->limit ? rn->set.size : rn->limit) / PAGE_SIZE;
        return 0;
}

static int rdma_attach(struct far_node *n, char *base, size_t len, char why[FAR_WHY])
{
        struct rdma_node *rn = n->data;
        int err = rn->control.channel ? 0 : rdma_rejoin(rn, why);

        if (err)
                return err;
        rn->mem.base = base;
        rn->mem.len = len;
        if (!rn->dev.verbs)
                return 0;               /* the node is down: see made() in recover.c */
        err = rdma_data_attach(rn, why);
        if (!err && n->hands_back && rn->data.state == DATA_UP)
                far_up(n);
        return err;
}

/* memnode's answer to LEASE: a grant as asked, or -errno. */
static int grant_of(const struct far_node *n, const union rdma_message *a, uint64_t bytes)
{
        if (a->h.type == NODE_REFUSED) {
                info_("%s: memnode refuses a lease: %.*s", n->option->origin, NODE_TEXT_MAX,
                      a->refused.text);
                return a->refused.error == NODE_ENOSPC     ? -ENOSPC
                       : a->refused.error == NODE_ELIMIT   ? -EDQUOT
                       : a->refused.error == NODE_ECLOSING ? -ESHUTDOWN
                                                           : -EIO;
        }
        if (a->h.type != NODE_GRANT || a->grant.bytes < bytes ||
            a->grant.address + a->grant.bytes < a->grant.address)
                return -EPROTO;
        return 0;
}

static int rdma_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                      struct slab *s, struct far_place *place)
{
        struct rdma_node *rn = n->data;
        struct rdma_control *c = &rn->control;
        union rdma_message a, m = { .lease = { .h = { NODE_MAGIC, NODE_VERSION, NODE_LEASE,
                                                      sizeof(struct node_lease), 0 },
                                               .bytes = (uint64_t)pages * PAGE_SIZE } };
        (void)vm;
        (void)first;
        (void)s;
        if (rdma_is_down(n))
                return -ENOLINK;
        struct rdma_grant *g = malloc(sizeof(*g));
        if (!g)
                return -ENOMEM;
        /* Held while waiting: the I/O thread needs no lock (rdma.h).  The limit is the time-out for
         * silence. */
        pthread_mutex_lock(&c->lock);
        int err = rdma_control_ask(rn, &m, now_ms() + rn->set.timeout_ms, &a);
        const uint32_t restarts = c->link.restarts;     /* may change without the lock */
        if (!err)
                err = grant_of(n, &a, m.lease.bytes);
        if (!err) {
                *g = (struct rdma_grant){
                        .slab = a.grant.slab,
                        .address = a.grant.address,
                        .bytes = a.grant.bytes,
                        .rkey = a.grant.rkey,
                        .restarts = restarts,
                        .next = atomic_load_explicit(&rn->grants, memory_order_relaxed),
                };
                /* One lease at a time: no other writer.  Under the lock, so that a thread that
                 * holds it and finds the node lost sees all grants. */
                atomic_store_explicit(&rn->grants, g, memory_order_release);
        }
        pthread_mutex_unlock(&c->lock);
        if (err) {
                free(g);
                return err;
        }
        place->data = g;
        const uint64_t word[] = { a.grant.slab, a.grant.address,
                                  rdma_key_word(a.grant.rkey, restarts) };
        memcpy(place->word, word, sizeof(word));
        return 0;
}

static void rdma_describe(const struct far_node *n, char *text, size_t size)
{
        const struct rdma_node *rn = n->data;
        const struct rdma_data *d = &rn->data;
        char a[32], to[80], how[96] = "zero copy", direct[RDMA_HOW];

        if (!rn->dev.verbs) {
                snprintf(text, size, "%s: %s at %.32s (%s), leased before and not connected yet",
                         n->url, size_text(n->pages * PAGE_SIZE, a),
                         rn->name[0] ? rn->name : "memnode", rdma_words_address(&rn->to, to));
                return;
        }
        if (rn->mem.pool)
                snprintf(how, sizeof(how), "%llu pages copied through %u KiB",
                         (unsigned long long)__atomic_load_n(&d->copies, __ATOMIC_RELAXED),
                         RDMA_POOL_PAGES * PAGE_SIZE / 1024);
        rdma_direct_how(rn, direct);
        snprintf(text, size,
                 "%s: %s at %.32s (%s) over %s port %u, %u in flight, %u reads at once, %s%s, "
                 "%llu reconnections",
                 n->url, size_text(n->pages * PAGE_SIZE, a), rn->name[0] ? rn->name : "memnode",
                 rdma_words_address(&rn->to, to), ibv_get_device_name(rn->dev.verbs->device),
                 rn->dev.port, d->q[FAR_READ].depth, d->q[FAR_READ].link.reads, how,
                 direct,
                 (unsigned long long)__atomic_load_n(&d->reconnections, __ATOMIC_RELAXED));
}

const struct far_driver far_rdma = {
        .scheme = "rdma",
        .kind = SLAB_REMOTE,
        .check = rdma_check,
        .open = rdma_open,
        .lease = rdma_lease,
        .use = rdma_use,
        .forked = rdma_forked,
        .keep = rdma_keep,
        .close = rdma_close,
        .describe = rdma_describe,
        .attach = rdma_attach,
        .post = rdma_data_post,
        .poll = rdma_data_poll,
        .arm = rdma_data_arm,
        .cut = rdma_cut,
        .answer = rdma_answer,
        .sum = far_sum,
        .spin_us = 50,
        .direct = rdma_direct_wanted,
        .ring = rdma_direct_ring,
        .own_rights = true,             /* write() to /dev/infiniband checks them */
};
extern const struct far_driver *const far_module[];
const struct far_driver *const far_module[] = { &far_rdma, NULL };
