/*
 * Connection requests and other events of rdma_cm: accepts or rejects connections, and notices
 * their ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "admission/party.h"
#include "admission/refusals.h"
#include "common/clock.h"
#include "memnode.h"
#include "rdma/challenge.h"
#include "rdma/client.h"
#include "rdma/connect.h"
#include "rdma/connection.h"
#include "rdma/control.h"
#include "rdma/device.h"
#include "rdma/parse.h"

/* 4.096 us * 2^14 = 67 ms; with six retries a dead machine is noticed in half a second */
#define ACK_TIMEOUT 14
#define RNR_RETRY   7           /* without limit: a stopped client posts no receives */

static struct challenge challenge;

bool connect_begin(void) { return challenge_begin(&challenge); }

/* A connection request, and who sent it. */
struct asked {
        struct rdma_cm_id *id;
        const struct rdma_conn_param *param;
        struct node_private p;
        struct asker who;
        char peer[64], origin[ORIGIN_TEXT];
};

static void fill_in(struct asked *a, struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
        const struct sockaddr *sa = rdma_get_peer_addr(id);

        *a = (struct asked){ .id = id, .param = param, .who.qpn = param->qp_num };
        proof_address(a->who.address, sa);
        origin_text(a->origin, sa, -1);
        if (sa->sa_family == AF_INET6)
                inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)sa)->sin6_addr, a->peer,
                          sizeof(a->peer));
        else
                snprintf(a->peer, sizeof(a->peer), "%s", a->origin);
}

static void reject(const struct asked *a, enum node_error error)
{
        struct node_private p = { .magic = NODE_MAGIC,
                                  .version = NODE_VERSION,
                                  .length = error == NODE_EVERSION ? a->p.length : sizeof(p),
                                  .kind = (uint16_t)error };

        if (error == NODE_ECOOKIE)
                p.cookie = challenge_cookie(&challenge, &a->who, now_ms());
        rdma_reject(a->id, &p, sizeof(p));
        rdma_destroy_id(a->id);
}

/* What strangers may cause, so that the log must be spared; else REFUSALS. */
static enum refusal cause_of(enum node_error error)
{
        switch (error) {
        case NODE_EPROTO:
        case NODE_EVERSION:
                return REFUSED_PROTOCOL;
        case NODE_EKEY:
        case NODE_ENOKEYS:
                return REFUSED_KEY;
        case NODE_EUNKNOWN:
                return REFUSED_REQUEST;
        case NODE_EBUSY:
                return REFUSED_CROWD;
        default:
                return REFUSALS;
        }
}

static void refuse(const struct asked *a, enum node_error error, const char *why)
{
        enum refusal cause = cause_of(error);

        if (cause == REFUSALS)
                info_("%s may not connect: %s", a->peer, why);
        else
                refused(cause, a->origin, a->peer, "%s", why);
        atomic_fetch_add_explicit(&rdma_counts.refused, 1, memory_order_relaxed);
        reject(a, error);
}

/* Those of one origin leave room for others. */
static bool too_many_strangers(const char *origin)
{
        unsigned n = 0, alike = 0;

        for (const struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_CONTROL && !c->client) {
                        n++;
                        alike += strcmp(c->origin, origin) == 0;
                }
        return n >= STRANGERS_MAX || alike >= PARTY_ORIGIN_PART(STRANGERS_MAX);
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

static struct connection *control_of(const struct client *cl, uint64_t member)
{
        struct connection *c = connections;

        while (c && (c->kind != NODE_CONTROL || c->client != cl || c->member != member))
                c = c->next;
        return c;
}

/* The last look before something is made: the request counts once. */
static int count_request(const struct asked *a, char *why, size_t n)
{
        int error = challenge_take(&challenge, &a->p, &a->who, now_ms());

        snprintf(why, n, error == NODE_EBUSY ? "too many connections within some seconds"
                                             : "its request was here before");
        return error;
}

/* 0 if no newer connection of this member was here; else why it is refused. */
static int admit_member(const struct asked *a, struct client *cl, char *why, size_t n)
{
        const struct node_private *p = &a->p;

        if (members_is_cut(&cl->members, p->member)) {
                snprintf(why, n, "this process of %s counts as dead", cl->name);
                return NODE_ECUT;
        }
        int err = p->kind == NODE_DATA
                          ? (has_control(cl, p) ? 0 : -ESTALE)
                          : members_may_admit(&cl->members, p->member, 0, p->generation);
        int error = err ? 0 : count_request(a, why, n);
        if (error)
                return error;
        if (!err && p->kind == NODE_CONTROL)
                err = members_admit(&cl->members, p->member, 0, p->generation);
        if (!err)
                return 0;
        if (err == -ESTALE) {
                snprintf(why, n, "a newer connection of this process of %s was here", cl->name);
                return NODE_ESTALE;
        }
        snprintf(why, n, "%s has too many processes", cl->name);
        return NODE_EBUSY;
}

/* Whether the request is to be believed: 0, or enum node_error with why. */
static int believe(const struct asked *a, struct client **client, struct key *key, char *why,
                   size_t n)
{
        *client = a->p.kind == NODE_NEW ? NULL : client_find(a->p.id);
        int error = a->p.kind == NODE_NEW
                            ? challenge_new(&challenge, &a->p, &a->who, now_ms(), key)
                            : challenge_client(&challenge, &a->p, &a->who, now_ms(),
                                               *client ? (*client)->secret : NULL);

        snprintf(why, n, "%s",
                 error == NODE_EKEY ? "no key, one that is not known here, or not its proof"
                 : error == NODE_ENOKEYS
                         ? "it comes with a key, and there are none here: start memnode with "
                           "--keys, or the client without keys="
                         : "no such client, or not its proof");
        return error;
}

/* One control connection more: 0, and *party if it counts for one; or enum node_error. */
static int count_connection(const struct asked *a, const struct client *cl, const struct key *key,
                            struct party **party, char *why, size_t n)
{
        struct party *p = cl && !cl->party ? NULL
                          : cl             ? party_hold(cl->party)
                          : *key->name     ? party_of_key(key->name)
                                           : party_of_origin(a->origin);

        if (!p && (!cl || cl->party)) {
                snprintf(why, n, "no memory is left");
                return NODE_EINTERNAL;
        }
        if (p && !party_connect(p, !cl)) {
                snprintf(why, n, "there are too many connections of %s, or of all", party_name(p));
                party_put(p);
                return NODE_EBUSY;
        }
        *party = p;
        return 0;
}

static void uncount(struct party *p)
{
        if (!p)
                return;
        party_disconnect(p);
        party_put(p);
}

/* Whether one more connection of a client may be accepted: 0, or why not. */
static int admit_known(const struct asked *a, struct device *d, struct client *cl,
                       const struct connection *old, char *why, size_t n)
{
        if (a->p.kind == NODE_DATA && data_of(cl, a->p.member) >= DATA_MAX) {
                snprintf(why, n, "a process of %s has %u data connections, which is the most",
                         cl->name, DATA_MAX);
                return NODE_EBUSY;
        }
        if (a->p.kind == NODE_CONTROL && !old && cl->controls >= MEMBERS_MAX) {
                snprintf(why, n, "%u processes of %s are connected, which is the most",
                         cl->controls, cl->name);
                return NODE_EBUSY;
        }
        if (!client_attach(cl, d)) {
                snprintf(why, n, "what %s has is not registered yet", cl->name);
                return NODE_EBUSY;
        }
        if (cl->device != d) {
                snprintf(why, n, "%s came through device %s before", cl->name,
                         ibv_get_device_name(cl->device->verbs->device));
                return NODE_EUNKNOWN;
        }
        return admit_member(a, cl, why, n);
}

/* Whether a connection that is believed may be accepted: 0, or why not.  Of what is refused nothing
 * stays. */
static int admit(const struct asked *a, struct device *d, struct client *cl, const struct key *key,
                 struct party **party, char *why, size_t n)
{
        if (rdma_ending) {
                snprintf(why, n, "memnode is ending");
                return cl && opt.resume ? NODE_EBUSY : NODE_ECLOSING;
        }
        if (!cl && too_many_strangers(a->origin)) {
                snprintf(why, n, "too many connections that have not said HELLO");
                return NODE_EBUSY;
        }
        /* The older connection of that member ends, and the new one counts in its place. */
        struct connection *old =
                a->p.kind == NODE_CONTROL ? control_of(cl, a->p.member) : NULL;
        int error = a->p.kind == NODE_DATA || old ? 0
                                                  : count_connection(a, cl, key, party, why, n);
        if (error)
                return error;
        error = cl ? admit_known(a, d, cl, old, why, n) : count_request(a, why, n);
        if (error) {
                uncount(*party);
        } else if (old) {
                *party = old->party;
                old->party = NULL;
        }
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

static int accept_connection(struct connection *c, const struct asked *a)
{
        const struct node_private *p = &a->p;
        uint8_t timeout = ACK_TIMEOUT;
        struct node_private answer = { .magic = NODE_MAGIC,
                                       .version = NODE_VERSION,
                                       .length = sizeof(answer),
                                       .kind = p->kind,
                                       .depth = p->depth < DEPTH_MAX ? p->depth : DEPTH_MAX,
                                       .generation = c->client ? c->client->restarts : 0,
                                       .id = p->id,
                                       .cookie = challenge_cookie(&challenge, &a->who, now_ms()) };
        const struct ibv_device_attr *d = &c->device->attr;
        struct rdma_conn_param param = {
                .private_data = &answer,
                .private_data_len = sizeof(answer),
                .responder_resources =
                        (uint8_t)least(a->param->responder_resources, d->max_qp_rd_atom),
                .initiator_depth =
                        (uint8_t)least(a->param->initiator_depth, d->max_qp_init_rd_atom),
                .rnr_retry_count = RNR_RETRY,
        };

        proof_answer(&answer, p->proof, c->client ? c->client->secret : c->key.secret,
                     c->client ? NODE_SECRET : c->key.bytes);
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
        struct connection *old = control_of(cl, member);

        if (old)
                connection_end(old);
        connection_end_member(cl, member);
        return old;
}

static void rejoin(struct client *cl, const struct connection *c, bool again)
{
        if (again || !cl->controls)
                notice_("%s at %s is back", cl->name, c->peer);
        else
                info_("another process of %s comes from %s", cl->name, c->peer);
        cl->controls++;
}

/* Makes the connection, to which `party` belongs from here on.  0, or enum node_error with why. */
static int make(const struct asked *a, struct device *d, struct client *cl, const struct key *key,
                struct party *party, char *why, size_t n)
{
        struct connection *c = calloc(1, sizeof(*c));

        if (!c) {
                uncount(party);
                snprintf(why, n, "no memory is left");
                return NODE_EINTERNAL;
        }
        c->id = a->id;
        c->device = d;
        c->kind = a->p.kind == NODE_DATA ? NODE_DATA : NODE_CONTROL;
        c->client = cl;
        c->party = party;
        c->key = *key;
        c->member = a->p.member;
        c->generation = a->p.generation;
        c->deadline = now_ms() + HELLO_MS;
        memcpy(c->peer, a->peer, sizeof(c->peer));
        memcpy(c->origin, a->origin, sizeof(c->origin));
        int err = c->kind == NODE_CONTROL ? control_setup(c) : data_setup(c);
        bool rejoins = c->kind == NODE_CONTROL && cl;
        bool again = !err && rejoins && end_older(cl, c->member);
        if (!err)
                err = accept_connection(c, a);
        if (err) {
                if (rejoins)            /* its older connection may have ended for it */
                        members_await(&cl->members, c->member);
                if (rejoins && !cl->controls)
                        cl->gone_at = now_ms();
                warnx_("%s cannot be served: %s", c->peer, strerror(-err));
                connection_release(c);
                free(c);
                snprintf(why, n, "%s", strerror(-err));
                return NODE_EINTERNAL;
        }
        a->id->context = c;
        connection_add(c);
        if (rejoins)
                rejoin(cl, c, again);
        info_("%s connects for %s", c->peer,
              c->kind == NODE_DATA ? "data"
              : cl                 ? "its old leases"
                                   : "control");
        return 0;
}

static void request(struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
        struct asked a;
        struct client *cl = NULL;
        struct party *party = NULL;
        struct key key = { .bytes = 0 };
        char why[NODE_TEXT_MAX];

        fill_in(&a, id, param);
        int error = node_private_parse(param->private_data, param->private_data_len, &a.p, why,
                                       sizeof(why));
        if (!error)
                error = believe(&a, &cl, &key, why, sizeof(why));
        if (error == NODE_ECOOKIE) {
                reject(&a, NODE_ECOOKIE);
                return;
        }
        struct device *d = error ? NULL : device_get(id->verbs);
        if (!error && !d) {
                snprintf(why, sizeof(why), "no device is left");
                error = NODE_EINTERNAL;
        }
        if (!error)
                error = admit(&a, d, cl, &key, &party, why, sizeof(why));
        if (!error)
                error = make(&a, d, cl, &key, party, why, sizeof(why));
        explicit_bzero(&key, sizeof(key));
        if (error)
                refuse(&a, (enum node_error)error, why);
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
