/*
 * Connection requests and other events of rdma_cm: accepts or rejects connections, and notices
 * their ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/clock.h"
#include "memnode.h"
#include "rdma/client.h"
#include "rdma/connect.h"
#include "rdma/connection.h"
#include "rdma/control.h"
#include "rdma/device.h"
#include "rdma/parse.h"

/* 4.096 us * 2^14 = 67 ms; with six retries a dead machine is noticed in half a second */
#define ACK_TIMEOUT 14
#define RNR_RETRY   7           /* without limit: a stopped client posts no receives */

static void peer_text(struct rdma_cm_id *id, char *text, size_t n)
{
        const struct sockaddr *sa = rdma_get_peer_addr(id);
        char host[INET6_ADDRSTRLEN] = "?";

        if (sa->sa_family == AF_INET)
                inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, host, sizeof(host));
        else if (sa->sa_family == AF_INET6)
                inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)sa)->sin6_addr, host,
                          sizeof(host));
        snprintf(text, n, "%s", host);
}

static void reject(struct rdma_cm_id *id, enum node_error error, const char *why)
{
        struct node_private p = { .magic = NODE_MAGIC,
                                  .version = NODE_VERSION,
                                  .length = sizeof(p),
                                  .kind = (uint16_t)error };
        char peer[64];

        peer_text(id, peer, sizeof(peer));
        info_("%s may not connect: %s", peer, why);
        atomic_fetch_add_explicit(&rdma_counts.refused, 1, memory_order_relaxed);
        rdma_reject(id, &p, sizeof(p));
        rdma_destroy_id(id);
}

static unsigned strangers(void)
{
        unsigned n = 0;
        for (const struct connection *c = connections; c; c = c->next)
                n += c->kind == NODE_CONTROL && !c->client;
        return n;
}

static unsigned data_of(const struct client *cl, uint64_t member)
{
        unsigned n = 0;
        for (const struct connection *c = connections; c; c = c->next)
                n += c->kind == NODE_DATA && c->client == cl && c->member == member;
        return n;
}

static bool has_control(const struct client *cl, const struct node_private *p)
{
        for (const struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_CONTROL && c->client == cl && c->member == p->member &&
                    c->generation == p->generation && !c->closing)
                        return true;
        return false;
}

/* 0 if no newer connection of this member was here; else why it is refused. */
static int admit_member(struct client *cl, const struct node_private *p, char *why, size_t n)
{
        if (members_is_cut(&cl->members, p->member)) {
                snprintf(why, n, "this process of %s counts as dead", cl->name);
                return NODE_ECUT;
        }
        int err = p->kind == NODE_DATA
                          ? (has_control(cl, p) ? 0 : -ESTALE)
                          : members_admit(&cl->members, p->member, 0, p->generation);
        if (!err)
                return 0;
        if (err == -ESTALE) {
                snprintf(why, n, "a newer connection of this process of %s was here", cl->name);
                return NODE_ESTALE;
        }
        snprintf(why, n, "%s has too many processes", cl->name);
        return NODE_EBUSY;
}

/* Whether this connection may be accepted: 0, or why not. */
static int admit(const struct node_private *p, struct device *d, struct client **client, char *why,
                 size_t n)
{
        *client = NULL;
        if (rdma_ending) {
                snprintf(why, n, "memnode is ending");
                return p->id && opt.resume ? NODE_EBUSY : NODE_ECLOSING;
        }
        if (p->kind == NODE_CONTROL && strangers() >= STRANGERS_MAX) {
                snprintf(why, n, "too many connections that have not said HELLO");
                return NODE_EBUSY;
        }
        if (!p->id)
                return 0;
        struct client *cl = client_find(p->id, p->secret);
        if (!cl) {
                snprintf(why, n, "no such client, or not its secret");
                return NODE_EUNKNOWN;
        }
        if (!client_attach(cl, d)) {
                snprintf(why, n, "what %s has cannot be registered now", cl->name);
                return NODE_EINTERNAL;
        }
        if (cl->device != d) {
                snprintf(why, n, "%s came through device %s before", cl->name,
                         ibv_get_device_name(cl->device->verbs->device));
                return NODE_EUNKNOWN;
        }
        if (p->kind == NODE_DATA && data_of(cl, p->member) >= DATA_MAX) {
                snprintf(why, n, "a process of %s has %u data connections, which is the most",
                         cl->name, DATA_MAX);
                return NODE_EBUSY;
        }
        if (p->kind == NODE_CONTROL && cl->controls >= MEMBERS_MAX) {
                snprintf(why, n, "%u processes of %s are connected, which is the most",
                         cl->controls, cl->name);
                return NODE_EBUSY;
        }
        int error = admit_member(cl, p, why, n);
        if (!error)
                *client = cl;
        return error;
}

static int data_setup(struct connection *c)
{
        struct ibv_qp_init_attr qp = {
                .send_cq = c->device->idle, .recv_cq = c->device->idle, .qp_type = IBV_QPT_RC,
                .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
        };
        return rdma_create_qp(c->id, c->client->pd, &qp) == 0 ? 0 : -errno;
}

static unsigned least(unsigned a, int b) { return b < 0 ? 0 : a < (unsigned)b ? a : (unsigned)b; }

static int accept_connection(struct connection *c, const struct node_private *p,
                             const struct rdma_conn_param *asked)
{
        uint8_t timeout = ACK_TIMEOUT;
        struct node_private answer = { .magic = NODE_MAGIC,
                                       .version = NODE_VERSION,
                                       .length = sizeof(answer),
                                       .kind = (uint16_t)c->kind,
                                       .depth = p->depth < DEPTH_MAX ? p->depth : DEPTH_MAX,
                                       .generation = c->client ? c->client->restarts : 0,
                                       .id = p->id };
        struct rdma_conn_param param = {
                .private_data = &answer,
                .private_data_len = sizeof(answer),
                .responder_resources =
                        (uint8_t)least(asked->responder_resources, c->device->attr.max_qp_rd_atom),
                .initiator_depth =
                        (uint8_t)least(asked->initiator_depth, c->device->attr.max_qp_init_rd_atom),
                .rnr_retry_count = RNR_RETRY,
        };

        if (rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                            sizeof(timeout)) != 0)
                info_("the ack timeout cannot be set: %s: that a client died may be noticed late",
                      strerror(errno));
        return rdma_accept(c->id, &param) == 0 ? 0 : -errno;
}

/* Before a control connection of a known member is answered, the older ones of that member end, for
 * control and data: nothing that they sent can arrive any more.  True: there was one. */
static bool end_older(const struct client *cl, uint64_t member)
{
        struct connection *old = connections;

        while (old && (old->kind != NODE_CONTROL || old->client != cl || old->member != member))
                old = old->next;
        if (old)
                connection_end(old);
        connection_end_member(cl, member);
        return old;
}

static void rejoin(struct client *cl, const struct connection *c, bool again)
{
        if (again || !cl->controls)
                warnx_("%s at %s is back", cl->name, c->peer);
        else
                info_("another process of %s comes from %s", cl->name, c->peer);
        cl->controls++;
}

static void request(struct rdma_cm_id *id, const struct rdma_conn_param *asked)
{
        struct node_private p;
        struct client *cl = NULL;
        char why[NODE_TEXT_MAX];
        struct device *d = device_get(id->verbs);

        int error = node_private_parse(asked->private_data, asked->private_data_len, &p, why,
                                       sizeof(why));
        if (!error && d)
                error = admit(&p, d, &cl, why, sizeof(why));
        if (error) {
                reject(id, (enum node_error)error, why);
                return;
        }
        struct connection *c = d ? calloc(1, sizeof(*c)) : NULL;
        if (!c) {
                reject(id, NODE_EINTERNAL, "no memory or no device is left");
                return;
        }
        c->id = id;
        c->device = d;
        c->kind = p.kind;
        c->client = cl;
        c->member = p.member;
        c->generation = p.generation;
        c->deadline = now_ms() + HELLO_MS;
        peer_text(id, c->peer, sizeof(c->peer));
        int err = c->kind == NODE_CONTROL ? control_setup(c) : data_setup(c);
        bool rejoins = c->kind == NODE_CONTROL && cl;
        bool again = !err && rejoins && end_older(cl, c->member);
        if (!err)
                err = accept_connection(c, &p, asked);
        if (err) {
                if (rejoins && !cl->controls)
                        cl->gone_at = now_ms();
                warnx_("%s cannot be served: %s", c->peer, strerror(-err));
                connection_release(c);
                free(c);
                reject(id, NODE_EINTERNAL, strerror(-err));
                return;
        }
        id->context = c;
        connection_add(c);
        if (rejoins)
                rejoin(cl, c, again);
        info_("%s connects for %s", c->peer,
              c->kind == NODE_DATA ? "data"
              : cl                 ? "its old leases"
                                   : "control");
}

void connections_tick(uint64_t now)
{
        for (struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_CONTROL && !c->ended)
                        control_tick(c, now);
}

void connection_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status,
                      const struct rdma_conn_param *param)
{
        /* NULL: a listening id, or an id that just came from it */
        struct connection *c = id->context;
        char why[96];

        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
                request(id, param);
                return;
        }
        if (!c) {
                if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
                        warnx_("the device that an address listens at was taken out: restart "
                               "memnode when it is back");
                return;
        }
        switch (type) {
        case RDMA_CM_EVENT_ESTABLISHED:
                c->established = true;
                if (c->closing)
                        control_close(c);
                break;
        case RDMA_CM_EVENT_DISCONNECTED:
                connection_lost(c, "it disconnected");
                break;
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_REJECTED:
                snprintf(why, sizeof(why), "it did not complete the connection (%s, status %d)",
                         rdma_event_str(type), status);
                connection_lost(c, why);
                break;
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
                connection_lost(c, "the device was taken out");
                break;
        default:
                break;                  /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing to do */
        }
}
