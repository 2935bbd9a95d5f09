/*
 * Control connections of the RDMA server: receiving requests, answering them, and the zero-byte
 * WRITEs that show whether a client is alive.
 *
 * A WRITE of no bytes needs no memory on the other side and no running program: the network card
 * answers it.  So a client that is stopped (Ctrl-Z, a debugger) counts as alive, and one whose
 * machine or link is dead does not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "common/clock.h"
#include "common/proof.h"
#include "account.h"
#include "admission/refusals.h"
#include "memnode.h"
#include "pool.h"
#include "rdma/client.h"
#include "rdma/connection.h"
#include "rdma/control.h"
#include "rdma/lease.h"
#include "rdma/parse.h"

#define BUFFERS ((RECEIVES + SENDS) * NODE_MESSAGE_MAX)
enum { PROBE_WR = RECEIVES + SENDS };   /* wr_id: number of the buffer, or this */

static char *buffer(const struct connection *c, unsigned i)
{
        return c->buffers + (size_t)i * NODE_MESSAGE_MAX;
}

static int post_receive(struct connection *c, unsigned i)
{
        struct ibv_sge sge = { (uintptr_t)buffer(c, i), NODE_MESSAGE_MAX, c->mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
        return -ibv_post_recv(c->id->qp, &wr, &bad);
}

int control_setup(struct connection *c)
{
        int err = 0;

        c->buffers = aligned_alloc(4096, (BUFFERS + 4095) & ~4095ul);
        if (!c->buffers)
                return -ENOMEM;
        memset(c->buffers, 0, BUFFERS);
        c->mr = ibv_reg_mr(c->device->pd, c->buffers, BUFFERS, IBV_ACCESS_LOCAL_WRITE);
        c->cq = c->mr ? ibv_create_cq(c->device->verbs, RECEIVES + SENDS + 2, c, c->device->channel,
                                      0)
                      : NULL;
        if (!c->cq)
                return -errno;
        struct ibv_qp_init_attr qp = {
                .send_cq = c->cq,
                .recv_cq = c->cq,
                .qp_type = IBV_QPT_RC,
                .sq_sig_all = 1,
                .cap = { .max_send_wr = SENDS + 1,
                         .max_recv_wr = RECEIVES,
                         .max_send_sge = 1,
                         .max_recv_sge = 1 },
        };
        if (rdma_create_qp(c->id, c->device->pd, &qp) != 0 || ibv_req_notify_cq(c->cq, 0) != 0)
                return -errno;
        for (unsigned i = 0; i < RECEIVES && !err; i++)
                err = post_receive(c, i);
        return err;
}

/* --- what memnode says --- */

/* Starts a message of the given type in a free send buffer.  NULL if none is free: the client asks
 * without waiting for answers. */
static void *compose(struct connection *c, enum node_type type, size_t size)
{
        unsigned i = 0;

        while (i < SENDS && c->sends_busy & 1u << i)
                i++;
        if (i == SENDS)
                return NULL;
        struct node_header *h = (struct node_header *)buffer(c, RECEIVES + i);
        memset(h, 0, size);
        *h = (struct node_header){ .magic = NODE_MAGIC,
                                   .version = NODE_VERSION,
                                   .type = (uint16_t)type,
                                   .length = (uint32_t)size,
                                   .request = c->request };
        return h;
}

static bool send_message(struct connection *c, void *message)
{
        unsigned i = (unsigned)(((char *)message - c->buffers) / NODE_MESSAGE_MAX);
        struct ibv_sge sge = { (uintptr_t)message, ((struct node_header *)message)->length,
                               c->mr->lkey };
        struct ibv_send_wr wr = { .wr_id = i,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED },
                           *bad;

        int err = ibv_post_send(c->id->qp, &wr, &bad);
        if (err) {
                connection_lost(c, strerror(err));
                return false;
        }
        c->sends_busy |= 1u << (i - RECEIVES);
        return true;
}

bool control_close(struct connection *c)
{
        /* Ending a connection before it is established looks like a rejection to the client, which
         * by then thinks it has a connection. */
        if (c->sends_busy || !c->established)
                return true;
        connection_lost(c, "memnode ended it");
        return false;
}

static bool close_soon(struct connection *c)
{
        connection_drop_job(c);
        c->closing = true;
        c->deadline = now_ms() + HELLO_MS;
        return control_close(c);
}

static bool refuse(struct connection *c, int error, const char *why, bool end)
{
        struct node_refused *m = compose(c, NODE_REFUSED, sizeof(*m));

        if (c->client)
                info_("%s is refused: %s", c->client->name, why);
        else
                refused(error == NODE_EPROTO || error == NODE_EVERSION ? REFUSED_PROTOCOL
                                                                       : REFUSED_LIMIT,
                        c->origin, c->peer, "%s", why);
        atomic_fetch_add_explicit(&rdma_counts.refused, 1, memory_order_relaxed);
        if (!m)
                return close_soon(c);
        m->error = (uint32_t)error;
        snprintf(m->text, sizeof(m->text), "%s", why);
        return send_message(c, m) && (!end || close_soon(c));
}

static bool flood(struct connection *c)
{
        connection_lost(c, "it asks without waiting for answers");
        return false;
}

bool control_goodbye(struct connection *c)
{
        struct node_plain *m =
                c->client && !c->closing ? compose(c, NODE_GOODBYE, sizeof(*m)) : NULL;

        return (!m || send_message(c, m)) && close_soon(c);
}

/* Asks the client to move away.  Like GOODBYE, the message answers no request. */
static bool say_drain(struct connection *c)
{
        struct node_plain *m = compose(c, NODE_DRAIN, sizeof(*m));

        if (!m)
                return true;            /* at the next tick */
        c->told = true;
        return send_message(c, m);
}

bool control_waits(const struct connection *c)
{
        return c->kind == NODE_CONTROL && c->client && c->client->nleases && !c->answered &&
               !c->closing && !c->ended;
}

/* --- what clients say --- */

/* Makes the client of a connection that says HELLO.  0, or enum node_error with why. */
static int admit(struct connection *c, const char *name, char *why, size_t n)
{
        enum node_error error;

        if (rdma_draining) {
                snprintf(why, n,
                         "it is being drained, and takes no new clients: name another node");
                return NODE_ECLOSING;
        }
        struct client *cl = client_new(c->device, name, c->party, why, n, &error);
        if (!cl)
                return error;
        if (members_admit(&cl->members, c->member, 0, c->generation) != 0) {
                client_end(cl);
                snprintf(why, n, "the node has no memory left");
                return NODE_EINTERNAL;
        }
        c->client = cl;
        cl->controls = 1;
        return 0;
}

static bool hello(struct connection *c, const struct node_hello *m)
{
        char why[NODE_TEXT_MAX], name[NODE_NAME_MAX];
        uint8_t nonce[NODE_NONCE];

        if (c->client)
                return refuse(c, NODE_EPROTO, "a second HELLO on one connection", true);
        if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
                return refuse(c, NODE_EINTERNAL, "no random numbers are left on the node", true);
        snprintf(name, sizeof(name), "%s", m->name[0] ? m->name : c->peer);
        int error = admit(c, name, why, sizeof(why));
        if (error)
                return refuse(c, error, why, true);
        struct client *cl = c->client;
        proof_secret(cl->secret, c->key.secret, c->key.bytes, cl->id, m->nonce, nonce);
        explicit_bzero(&c->key, sizeof(c->key));

        struct node_welcome *w = compose(c, NODE_WELCOME, sizeof(*w));
        if (!w)
                return flood(c);
        w->id = cl->id;
        memcpy(w->nonce, nonce, sizeof(w->nonce));
        client_room(cl, w);
        w->grace_ms = __atomic_load_n(&opt.grace_ms, __ATOMIC_RELAXED);
        w->depth = DEPTH_MAX;
        w->keeps = opt.resume ? NODE_KEEPS : 0;
        if (gethostname(w->name, sizeof(w->name) - 1) != 0)
                snprintf(w->name, sizeof(w->name), "memnode");
        notice_("%s at %s is served", cl->name, c->peer);
        return send_message(c, w);
}

/* --- requests that the worker has a part in --- */

/* A lease waits so long for memory that is being zeroed: less than the --timeout of clients, 10 s,
 * who then take the node for silent, and would leave the lease to nobody. */
#define ZERO_WAIT_MS 8000

struct work {
        struct job job;
        struct connection *c;           /* for done(): there if the job was not dropped */
        struct client *client;
        uint32_t request;
        uint64_t bytes;                 /* LEASE */
        int64_t until;                  /* LEASE: ms: it waits no longer for zeroed memory */
        bool claimed;                   /* LEASE: see lease_make() */
        struct lease *lease;            /* LEASE: NULL: it could not be made */
        int error;
        char why[NODE_TEXT_MAX];
};

static void make(struct job *j)
{
        struct work *w = (struct work *)j;

        w->error = lease_make(w->client, w->bytes, &w->claimed, &w->lease, w->why, sizeof(w->why));
        j->again = w->error == -EAGAIN && now_ms() < w->until;
        if (w->error != -EAGAIN || j->again)
                return;
        account_unclaim(w->client->account, w->bytes);
        w->claimed = false;
        w->error = NODE_ENOSPC;
        snprintf(w->why, sizeof(w->why), "what is free is still being zeroed");
}

/* Also by the RDMA thread, for a job that did not begin or was put off. */
static void unmake(struct job *j)
{
        struct work *w = (struct work *)j;

        if (w->claimed)
                account_unclaim(w->client->account, w->bytes);
        if (w->lease)
                lease_end(w->client, w->lease);
        free(w);
}

static void made(struct job *j)
{
        struct work *w = (struct work *)j;
        struct connection *c = w->c;
        struct node_grant *g;

        c->request = w->request;
        g = w->error ? NULL : compose(c, NODE_GRANT, sizeof(*g));
        if (!w->error && !g) {
                flood(c);               /* which drops the job */
                return;
        }
        c->job = NULL;
        if (g)
                client_leases(w->client, w->lease, g);
        if (w->error ? refuse(c, w->error, w->why, false) : send_message(c, g))
                c->request = 0;
        free(w);
}

static void unlease(struct job *j)
{
        struct work *w = (struct work *)j;

        lease_end(w->client, w->lease);
}

static void forget(struct job *j) { free(j); }

static void unleased(struct job *j)
{
        struct work *w = (struct work *)j;
        struct connection *c = w->c;
        struct node_plain *m;

        c->job = NULL;
        c->request = w->request;
        m = compose(c, NODE_DONE, sizeof(*m));
        if (m ? send_message(c, m) : flood(c))
                c->request = 0;
        free(w);
}

/* False: the client does not take what was answered before. */
static bool takes_answers(const struct connection *c)
{
        return c->sends_busy != (1u << SENDS) - 1;
}

static bool give_to_worker(struct connection *c, struct work w)
{
        struct work *copy = malloc(sizeof(*copy));

        if (!copy)
                return false;
        w.job.owner = w.client = c->client;
        w.c = c;
        w.request = c->request;
        *copy = w;
        c->job = &copy->job;
        worker_add(c->job);
        return true;
}

static bool lease(struct connection *c, uint64_t bytes)
{
        char why[NODE_TEXT_MAX] = "the node has no memory left";

        if (!takes_answers(c))
                return flood(c);
        if (rdma_draining)
                return refuse(c, NODE_ECLOSING, "it is being drained", false);
        int error = client_may_lease(c->client, why, sizeof(why));
        if (!error && !give_to_worker(c, (struct work){ .job = { .run = make, .done = made,
                                                                 .undo = unmake },
                                                        .bytes = bytes,
                                                        .until = now_ms() + ZERO_WAIT_MS }))
                error = NODE_EINTERNAL;
        return error ? refuse(c, error, why, false) : true;
}

static bool release_slab(struct connection *c, uint64_t slab)
{
        char why[NODE_TEXT_MAX];

        if (!takes_answers(c))
                return flood(c);
        struct lease *l = client_release(c->client, slab, why, sizeof(why));

        if (!l)
                return refuse(c, NODE_EUNKNOWN, why, false);
        if (give_to_worker(c, (struct work){ .job = { .run = unlease, .done = unleased,
                                                      .undo = forget, .must = true },
                                             .lease = l }))
                return true;
        lease_end(c->client, l);        /* without memory for a job all others wait for it */
        struct node_plain *m = compose(c, NODE_DONE, sizeof(*m));
        return m ? send_message(c, m) : flood(c);
}

/* --- and those that it has none in --- */

static bool find_slab(struct connection *c, uint64_t slab)
{
        char why[NODE_TEXT_MAX];
        struct node_grant *g = compose(c, NODE_GRANT, sizeof(*g));

        if (!g)
                return flood(c);
        int error = client_find_slab(c->client, slab, g, why, sizeof(why));
        return error ? refuse(c, error, why, false) : send_message(c, g);
}

static bool cut(struct connection *c, const struct node_cut *m)
{
        struct node_plain *done = compose(c, NODE_DONE, sizeof(*done));
        int err = 0;

        if (!done)
                return flood(c);
        for (unsigned i = 0; i < m->count && !err; i++)
                err = members_cut(&c->client->members, m->range[i].first, m->range[i].last);
        if (err)
                return refuse(c, NODE_EINTERNAL, "the node has no memory left for dead processes",
                              false);
        if (members_is_cut(&c->client->members, c->member))
                return refuse(c, NODE_ECUT, "this process counts as dead itself", true);
        connection_end_cut(c->client, c);
        return send_message(c, done);
}

static bool moved(struct connection *c, bool has_moved)
{
        struct node_plain *m = compose(c, NODE_DONE, sizeof(*m));

        if (!m)
                return flood(c);
        c->answered = true;
        c->moved = has_moved;
        info_("a process of %s at %s %s", c->client->name, c->peer,
              has_moved ? "has moved away" : "cannot move away");
        return send_message(c, m);
}

static bool obey(struct connection *c, const struct node_request *rq)
{
        if (!c->client && rq->type != NODE_HELLO)
                return refuse(c, NODE_EPROTO, "a request before HELLO", true);
        /* A client that asks for something else has given up the request before. */
        connection_drop_job(c);
        switch (rq->type) {
        case NODE_HELLO:
                return hello(c, &rq->hello);
        case NODE_LEASE:
                return lease(c, rq->lease.bytes);
        case NODE_RELEASE:
                return release_slab(c, rq->release.slab);
        case NODE_FIND:
                return find_slab(c, rq->find.slab);
        case NODE_CUT:
                return cut(c, &rq->cut);
        case NODE_MOVED:
                return moved(c, rq->moved.moved);
        default:
                notice_("%s says goodbye: its memory is free", c->client->name);
                client_end(c->client);
                return close_soon(c);
        }
}

/* Whether more requests arrive in a second than any real client sends. */
static bool too_many(struct connection *c)
{
        uint64_t second = now_ms() / 1000;
        if (second != c->second) {
                c->second = second;
                c->requests = 0;
        }
        return ++c->requests > REQUESTS_MAX;
}

static bool received(struct connection *c, unsigned i, size_t length)
{
        struct node_request rq;
        char why[NODE_TEXT_MAX];

        if (c->closing)
                return true;            /* it has had its answer; the receive is not posted again */
        if (too_many(c))
                return flood(c);
        int error = node_request_parse(buffer(c, i), length, &rq, why, sizeof(why));
        c->request = error ? 0 : rq.hello.h.request;    /* any of its union */
        if (!(error ? refuse(c, error, why, true) : obey(c, &rq)))
                return false;
        c->request = 0;
        int err = c->closing ? 0 : post_receive(c, i);
        if (err)
                connection_lost(c, strerror(-err));
        return !err;
}

/* --- completions and the clock --- */

static bool completed(struct connection *c, const struct ibv_wc *wc)
{
        char why[128];

        if (wc->status != IBV_WC_SUCCESS) {
                snprintf(why, sizeof(why), "%s: %s",
                         wc->wr_id < RECEIVES    ? "receiving from it"
                         : wc->wr_id == PROBE_WR ? "it does not answer"
                                                 : "sending to it",
                         ibv_wc_status_str(wc->status));
                connection_lost(c, why);
                return false;
        }
        if (wc->wr_id < RECEIVES)
                return received(c, (unsigned)wc->wr_id, wc->byte_len);
        if (wc->wr_id == PROBE_WR) {
                c->probing = false;
                return true;
        }
        c->sends_busy &= ~(1u << (wc->wr_id - RECEIVES));
        return !c->closing || control_close(c);
}

static bool drain(struct connection *c)
{
        struct ibv_wc wc;
        int got;

        while ((got = ibv_poll_cq(c->cq, 1, &wc)) > 0)  /* bounded by too_many() */
                if (!completed(c, &wc))
                        return false;
        if (got < 0) {
                connection_lost(c, "its completion queue is broken");
                return false;
        }
        return true;
}

void control_completions(struct device *d)
{
        struct ibv_cq *cq;
        void *context;

        for (unsigned i = 0; i < 64; i++) {     /* then other connections have their turn */
                if (ibv_get_cq_event(d->channel, &cq, &context) != 0)
                        return;
                ibv_ack_cq_events(cq, 1);
                struct connection *c = context;
                /* Armed before it is polled: a completion in between makes an event. */
                if (ibv_req_notify_cq(cq, 0) != 0)
                        connection_lost(c, "its completion queue is broken");
                else
                        drain(c);
        }
}

bool control_tick(struct connection *c, uint64_t now)
{
        if (!drain(c))
                return false;
        if (!c->closing && !c->client && now >= c->deadline)
                refused(REFUSED_SLOW, c->origin, c->peer, "it did not say HELLO in time");
        if ((c->closing || !c->client) && now >= c->deadline) {
                connection_lost(c, c->closing ? "it does not take the last words"
                                              : "it did not say HELLO in time");
                return false;
        }
        if (c->closing)
                return control_close(c);
        if (rdma_draining && c->client && c->established && !c->told && !say_drain(c))
                return false;
        if (!c->established || now - c->probed_at < PROBE_MS)
                return true;
        if (c->probing) {
                if (now - c->probed_at < PROBE_LOST_MS)
                        return true;
                connection_lost(c, "it does not answer");
                return false;
        }
        /* No memory at either end, so neither address nor key matters. */
        struct ibv_send_wr wr = { .wr_id = PROBE_WR,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED },
                           *bad;
        int err = ibv_post_send(c->id->qp, &wr, &bad);
        if (err) {
                connection_lost(c, strerror(err));
                return false;
        }
        c->probing = true;
        c->probed_at = now;
        return true;
}
