/*
 * One connection made by rdma_cm, as an event-driven state machine: nothing here waits for the
 * network.
 *
 * start -> address resolved: make CQ and QP -> route resolved: connect -> established.  Each step
 * may fail; then the link keeps a sentence and waits to be closed.  The caller limits the time of a
 * step: it closes the link when it has waited enough.
 *
 * memnode rejects a request whose cookie is not valid, and gives one that is.  rdma_cm takes no
 * second request for an identifier, so all begins again, with another queue pair.
 *
 * librdmacm moves the QP through its states itself.  The QP reports silence of the peer after about
 * half a second: an ack time-out of 4.096 us << 14 = 67 ms (devices may take up to four times that)
 * and 6 retries.  rdma_cm's defaults report it after minutes, or never.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/proof.h"
#include "far/rdma/card.h"
#include "far/rdma/device.h"
#include "far/rdma/link.h"
#include "far/rdma/words.h"

#define ACK_TIMEOUT   14
#define RETRIES       6
/* for the kernel's part of address and route; our own limit is shorter */
#define STEP_MS       4000
#define COOKIES_MOST  3

void rdma_link_fail(struct rdma_link *l, enum rdma_failure failure, const char *fmt, ...)
{
        va_list ap;

        if (l->state == LINK_FAILED)
                return;                 /* the first reason is the one to tell */
        va_start(ap, fmt);
        vsnprintf(l->why, sizeof(l->why), fmt, ap);
        va_end(ap);
        l->failure = failure;
        l->state = LINK_FAILED;
}

void rdma_link_errno(struct rdma_link *l, int err, const char *doing)
{
        char why[FAR_WHY];

        rdma_link_fail(l, rdma_words_errno(&l->node->to, err, doing, why), "%s", why);
}

void rdma_link_silent(struct rdma_link *l, unsigned ms)
{
        char why[FAR_WHY];
        bool found = l->state != LINK_ADDRESS && l->state != LINK_ROUTE;

        rdma_link_fail(l, rdma_words_silent(&l->node->to, found, ms, why), "%s", why);
}

static void start(struct rdma_link *l)
{
        struct rdma_node *rn = l->node;
        struct sockaddr *from = rn->from.sa.sa_family == AF_UNSPEC ? NULL : &rn->from.sa;

        l->failure = FAIL_NONE;
        l->why[0] = '\0';
        l->state = LINK_ADDRESS;
        if (rdma_create_id(l->channel, &l->id, l, RDMA_PS_TCP) != 0) {
                l->id = NULL;
                rdma_link_errno(l, errno, "make a connection");
        } else if (rdma_resolve_addr(l->id, from, &rn->to.sa, STEP_MS) != 0) {
                rdma_link_errno(l, errno, "resolve");
        }
}

void rdma_link_start(struct rdma_link *l)
{
        l->cookies = 0;
        start(l);
}

/* One link at a time: a new mapping of the device is its ring (rxe.c). */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* With `making` held. */
static void make_queues_alone(struct rdma_link *l)
{
        struct rdma_device *d = &l->node->dev;

        l->cq = l->card ? l->card->make_cq(l)
                        : ibv_create_cq(d->verbs, (int)(l->send + l->recv), l, *l->comp, 0);
        if (!l->cq) {
                rdma_link_errno(l, errno, "make a completion queue");
                return;
        }
        struct ibv_qp_init_attr attr = {
                .qp_context = l,
                .send_cq = l->cq,
                .recv_cq = l->cq,
                .qp_type = IBV_QPT_RC,
                .cap = { .max_send_wr = l->send,
                         .max_recv_wr = l->recv,
                         .max_send_sge = l->sge,
                         .max_recv_sge = 1 },
        };
        if (l->card ? l->card->make_qp(l, &attr) : rdma_create_qp(l->id, d->pd, &attr)) {
                rdma_link_errno(l, errno, "make a queue pair");
                return;
        }
        int err = l->ready ? l->ready(l) : 0;
        if (err)
                rdma_link_errno(l, -err, "post a receive");
}

static void make_queues(struct rdma_link *l)
{
        pthread_mutex_lock(&making);
        make_queues_alone(l);
        pthread_mutex_unlock(&making);
}

static void make_qp(struct rdma_link *l)
{
        struct rdma_node *rn = l->node;
        struct rdma_device *d = &rn->dev;
        char text[80], why[FAR_WHY];

        if (!l->id->verbs) {            /* a loopback address, which belongs to no device */
                rdma_link_fail(l, FAIL_FINAL,
                               "%s belongs to no RDMA device: give the address of an interface "
                               "that has one",
                               rdma_words_address(&rn->to, text));
                return;
        }
        if (!d->verbs && rdma_device_open(d, l->id, why) != 0) {
                rdma_link_fail(l, FAIL_FINAL, "%s", why);
                return;
        }
        rdma_card_look(rn);
        const char *device = ibv_get_device_name(l->id->verbs->device);
        if (l->id->verbs != d->verbs) {
                /* Memory is registered with one device, and the route now leads to another.  It may
                 * come back. */
                rdma_link_fail(
                        l, FAIL_SILENT,
                        "%s is now reached over RDMA device %.32s, not %.32s: restore the route",
                        rdma_words_address(&rn->to, text), device,
                        ibv_get_device_name(d->verbs->device));
                return;
        }
        if (rn->set.device && strcmp(device, rn->set.device) != 0) {
                rdma_link_fail(l, FAIL_FINAL,
                               "%s is reached over RDMA device %.32s, not %.32s: correct the "
                               "device, or the route",
                               rdma_words_address(&rn->to, text), device, rn->set.device);
                return;
        }
        struct ibv_port_attr port;
        if (ibv_query_port(d->verbs, l->id->port_num, &port) == 0 &&
            port.state != IBV_PORT_ACTIVE) {
                rdma_link_fail(l, FAIL_SILENT,
                               "port %u of RDMA device %.32s has no link (%s): plug in its cable, "
                               "or `ip link set IF up`",
                               l->id->port_num, device, ibv_port_state_str(port.state));
                return;
        }
        d->port = l->id->port_num;
        make_queues(l);
}

static void resolve_route(struct rdma_link *l)
{
        uint8_t timeout = ACK_TIMEOUT;

        /* An older kernel does not know this option: then silence is reported later, and the
         * watchdog covers it. */
        rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                        sizeof(timeout));
        l->state = LINK_ROUTE;
        if (rdma_resolve_route(l->id, STEP_MS) != 0)
                rdma_link_errno(l, errno, "resolve the route");
}

/* The secret by which both sides prove themselves, and its length. */
static const uint8_t *secret_of(const struct rdma_link *l, size_t *n)
{
        const struct rdma_node *rn = l->node;
        bool fresh = l->ask.kind == NODE_NEW;

        *n = fresh ? rn->set.key.bytes : NODE_SECRET;
        return fresh ? rn->set.key.secret : rn->control.secret;
}

static void prove(struct rdma_link *l)
{
        uint8_t address[PROOF_ADDRESS];
        size_t n;
        const uint8_t *secret = secret_of(l, &n);

        proof_address(address, rdma_get_local_addr(l->id));
        l->ask.cookie = atomic_load_explicit(&l->node->cookie, memory_order_relaxed);
        proof_request(&l->ask, address, l->id->qp->qp_num, secret, n);
}

static void connect_link(struct rdma_link *l)
{
        int most = l->node->dev.attr.max_qp_init_rd_atom;
        struct rdma_conn_param p = {
                .private_data = &l->ask,
                .private_data_len = sizeof(l->ask),
                /* outstanding READs of this side; the peer may lower it */
                .initiator_depth = (uint8_t)(most < 1 ? 1 : most > 128 ? 128 : most),
                /* the peer reads nothing here; some devices do not accept 0 */
                .responder_resources = 1,
                .retry_count = RETRIES,
                .rnr_retry_count = RETRIES,
        };
        prove(l);
        l->state = LINK_CONNECT;
        if (rdma_connect(l->id, &p) != 0)
                rdma_link_errno(l, errno, "connect");
}

static void established(struct rdma_link *l, const struct rdma_conn_param *p)
{
        struct node_private reply;
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        size_t n;
        const uint8_t *secret = secret_of(l, &n);
        enum rdma_reply what = rdma_words_reply(p->private_data, p->private_data_len, &reply);

        if (what == REPLY_NONE) {
                rdma_link_fail(l, FAIL_FINAL,
                               "what listens there is no memnode: correct the address or the port");
                return;
        }
        if (what == REPLY_VERSION) {
                rdma_link_fail(l, FAIL_FINAL,
                               "its memnode speaks version %u of the protocol, this vmrun version "
                               "%u: install the same version on both",
                               reply.version, NODE_VERSION);
                return;
        }
        if (!proof_answer_holds(&reply, l->ask.proof, secret, n)) {
                rdma_link_fail(l, FAIL_SILENT,
                               "what accepts there does not prove that it is the memnode with this "
                               "%s: correct the address, or see who has taken it",
                               l->ask.kind == NODE_NEW ? "key" : "program's memory");
                return;
        }
        atomic_store_explicit(&l->node->cookie, reply.cookie, memory_order_relaxed);
        l->depth = reply.depth;
        l->restarts = reply.generation;
        l->reads = ibv_query_qp(l->id->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init) == 0
                           ? attr.max_rd_atomic
                           : 0;
        l->state = LINK_UP;
}

/* memnode gave a cookie instead of a connection. */
static bool took_cookie(struct rdma_link *l, const struct rdma_cm_event *ev)
{
        struct node_private p;

        if (ev->event != RDMA_CM_EVENT_REJECTED ||
            rdma_words_reply(ev->param.conn.private_data, ev->param.conn.private_data_len, &p) !=
                    REPLY_WHOLE ||
            p.kind != NODE_ECOOKIE || !p.cookie)
                return false;
        atomic_store_explicit(&l->node->cookie, p.cookie, memory_order_relaxed);
        /* The rings of a card's queue pair are made by who starts the link (direct.c). */
        return !l->card && l->cookies++ < COOKIES_MOST;
}

static void event(struct rdma_link *l, const struct rdma_cm_event *ev)
{
        if (l->state == LINK_FAILED)
                return;
        if (ev->event == RDMA_CM_EVENT_ADDR_RESOLVED && l->state == LINK_ADDRESS) {
                make_qp(l);
                if (l->state == LINK_ADDRESS)
                        resolve_route(l);
        } else if (ev->event == RDMA_CM_EVENT_ROUTE_RESOLVED && l->state == LINK_ROUTE) {
                connect_link(l);
        } else if (ev->event == RDMA_CM_EVENT_ESTABLISHED && l->state == LINK_CONNECT) {
                established(l, &ev->param.conn);
        } else if (took_cookie(l, ev)) {
                l->state = LINK_AGAIN;
        } else if (ev->event != RDMA_CM_EVENT_TIMEWAIT_EXIT &&
                   ev->event != RDMA_CM_EVENT_ADDR_CHANGE) {
                char why[FAR_WHY];
                rdma_link_fail(l, rdma_words_event(&l->node->to, ev, why), "%s", why);
        }
}

/* A mapping that goes while a ring is looked for could come again as that ring. */
void rdma_link_close(struct rdma_link *l)
{
        pthread_mutex_lock(&making);
        if (l->id) {
                if (l->id->qp)
                        rdma_destroy_qp(l->id);
                rdma_destroy_id(l->id);         /* tells the peer, if it was connected */
                l->id = NULL;
        }
        if (l->cq) {
                ibv_destroy_cq(l->cq);
                l->cq = NULL;
        }
        pthread_mutex_unlock(&making);
        l->state = LINK_NONE;
}

unsigned rdma_link_events(struct rdma_event_channel *channel)
{
        struct rdma_cm_event *ev;
        unsigned n = 0;

        for (; rdma_get_cm_event(channel, &ev) == 0; n++) {
                struct rdma_link *l = ev->id->context;
                event(l, ev);
                rdma_ack_cm_event(ev);
                if (l->state == LINK_AGAIN) {           /* its identifier can go only now */
                        rdma_link_close(l);
                        start(l);
                }
        }
        return n;
}
