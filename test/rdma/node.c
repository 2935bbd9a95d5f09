/*
 * See node.h.  One thread; an error of its own ends it with a sentence, since then the test means
 * nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/proof.h"
#include "node.h"
#include "nodeproto.h"

#define CONNS    16
#define RECEIVES 4
#define COOKIE   0x6b6f6f43             /* the one that it takes */

struct conn {
        struct rdma_cm_id *id;          /* NULL: free */
        struct ibv_cq *cq;
        bool control, up;
};

static struct {
        const struct node_config *cfg;
        struct rdma_event_channel *events;
        struct ibv_comp_channel *comp;
        struct ibv_pd *pd;
        struct ibv_mr *mr, *message_mr;
        char *memory, (*messages)[NODE_MESSAGE_MAX];    /* RECEIVES to receive, one to send */
        size_t leased;
        uint64_t id;                    /* of the client, 0: none */
        uint8_t secret[NODE_SECRET];
        unsigned controls;              /* control connections so far */
        /* numbers of the request in hand, and of a CUT not answered yet */
        uint32_t request, cut;
        bool silent;
        int resume_ms;                  /* when silent: left of it, -1: for ever */
        struct conn conns[CONNS];
} node;

__attribute__((format(printf, 1, 2)))
static _Noreturn void fail(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        fputs("node: ", stderr);
        vfprintf(stderr, fmt, ap);
        fprintf(stderr, ": %s\n", strerror(errno));
        va_end(ap);
        _exit(1);
}

static bool fault(const char *name) { return strcmp(node.cfg->fault, name) == 0; }

static void end_conn(struct conn *c)
{
        if (!c->id)
                return;
        rdma_destroy_qp(c->id);
        rdma_destroy_id(c->id);
        ibv_destroy_cq(c->cq);
        memset(c, 0, sizeof(*c));
}

static void end_conns(bool control, bool data)
{
        for (int i = 0; i < CONNS; i++)
                if (node.conns[i].control ? control : data)
                        end_conn(&node.conns[i]);
}

static void post_receive(struct conn *c, uint64_t i)
{
        struct ibv_sge sge = { .addr = (uintptr_t)node.messages[i],
                               .length = NODE_MESSAGE_MAX,
                               .lkey = node.message_mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
        if (ibv_post_recv(c->id->qp, &wr, &bad) != 0)
                fail("post a receive");
}

static void send_bytes(struct conn *c, const void *m, size_t n)
{
        struct ibv_sge sge = { .addr = (uintptr_t)node.messages[RECEIVES],
                               .length = (uint32_t)n,
                               .lkey = node.message_mr->lkey };
        struct ibv_send_wr wr = { .wr_id = RECEIVES,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED },
                           *bad;
        memcpy(node.messages[RECEIVES], m, n);
        ((struct node_header *)(void *)node.messages[RECEIVES])->request = node.request;
        if (ibv_post_send(c->id->qp, &wr, &bad) != 0)
                fail("send");
}

static struct node_header header(uint16_t type, size_t n)
{
        return (struct node_header){ NODE_MAGIC, NODE_VERSION, type, (uint32_t)n, 0 };
}

static void refuse(struct conn *c, uint32_t error, const char *text)
{
        struct node_refused m = { .h = header(NODE_REFUSED, sizeof(m)), .error = error };
        snprintf(m.text, sizeof(m.text), "%s", text);
        send_bytes(c, &m, sizeof(m));
}

static void register_memory(void)
{
        node.mr = ibv_reg_mr(node.pd, node.memory, node.cfg->bytes,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                     IBV_ACCESS_REMOTE_WRITE);
        if (!node.mr)
                fail("register memory");
}

static void set_up_device(struct ibv_context *verbs)
{
        if (node.pd)
                return;
        node.pd = ibv_alloc_pd(verbs);
        node.comp = ibv_create_comp_channel(verbs);
        if (!node.pd || !node.comp)
                fail("set up the device");
        fcntl(node.comp->fd, F_SETFL, O_NONBLOCK);
        register_memory();
        node.messages = aligned_alloc(4096, 4096);
        node.message_mr = ibv_reg_mr(node.pd, node.messages, 4096, IBV_ACCESS_LOCAL_WRITE);
        if (!node.message_mr)
                fail("register messages");
}

static void reject(struct rdma_cm_id *id, uint16_t version, uint16_t error)
{
        struct node_private r = { .magic = NODE_MAGIC,
                                  .version = version,
                                  .length = sizeof(r),
                                  .kind = error,
                                  .cookie = error == NODE_ECOOKIE ? COOKIE : 0 };
        rdma_reject(id, &r, sizeof(r));
        rdma_destroy_id(id);
}

static void request(struct rdma_cm_id *id, struct rdma_conn_param p)
{
        uint8_t address[PROOF_ADDRESS];
        struct node_private r;

        if (p.private_data_len < sizeof(r))
                fail("%u bytes of private data", p.private_data_len);
        memcpy(&r, p.private_data, sizeof(r));
        if (node.silent || fault("deaf") || (fault("nodata") && r.kind == NODE_DATA))
                return;                 /* the client hears nothing */
        if (fault("version")) {
                reject(id, NODE_VERSION + 1, NODE_EVERSION);
                return;
        }
        if (fault("key")) {
                reject(id, NODE_VERSION, NODE_EKEY);
                return;
        }
        if (r.cookie != COOKIE || fault("cookies")) {
                reject(id, NODE_VERSION, NODE_ECOOKIE);
                return;
        }
        bool rejoin = r.kind != NODE_NEW;
        if (fault("unknown") || (rejoin && (r.id != node.id || !node.id))) {
                reject(id, NODE_VERSION, NODE_EUNKNOWN);
                return;
        }
        proof_address(address, rdma_get_peer_addr(id));
        if (!proof_request_holds(&r, address, p.qp_num, node.secret, rejoin ? NODE_SECRET : 0))
                fail("a request of kind %u without its proof", r.kind);
        /* the fence: nothing of the older connections may come late */
        if (r.kind != NODE_DATA) {
                end_conns(true, true);
                node.controls++;
        }
        struct conn *c = node.conns;
        while (c->id)
                if (++c == node.conns + CONNS)
                        fail("too many connections");
        set_up_device(id->verbs);
        *c = (struct conn){ .id = id, .control = r.kind != NODE_DATA };
        id->context = c;
        c->cq = ibv_create_cq(id->verbs, 16, c, node.comp, 0);
        struct ibv_qp_init_attr attr = { .send_cq = c->cq,
                                         .recv_cq = c->cq,
                                         .qp_type = IBV_QPT_RC,
                                         .cap = { .max_send_wr = 4,
                                                  .max_recv_wr = RECEIVES,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1 } };
        if (!c->cq || ibv_req_notify_cq(c->cq, 0) != 0 || rdma_create_qp(id, node.pd, &attr) != 0)
                fail("make a queue pair");
        for (uint64_t i = 0; c->control && i < RECEIVES; i++)
                post_receive(c, i);
        struct node_private a = {
                .magic = NODE_MAGIC, .version = NODE_VERSION, .length = sizeof(a), .kind = r.kind
        };
        a.depth = (uint16_t)(fault("shrink") && node.controls > 1 ? 8 : node.cfg->depth);
        a.cookie = COOKIE;
        proof_answer(&a, r.proof, node.secret, rejoin ? NODE_SECRET : 0);
        a.proof[0] ^= fault("impostor");
        struct rdma_conn_param accept = { .private_data = fault("stranger") ? NULL : &a,
                                          .private_data_len = fault("stranger") ? 0 : sizeof(a),
                                          .responder_resources = p.responder_resources < 16
                                                                         ? p.responder_resources
                                                                         : 16,
                                          .initiator_depth = 1,
                                          .rnr_retry_count = 6 };
        if (rdma_accept(id, &accept) != 0)
                fail("accept");
}

static void event(struct rdma_cm_event *ev)
{
        struct rdma_cm_id *id = ev->id;
        struct conn *c = id->context;
        enum rdma_cm_event_type type = ev->event;
        struct rdma_conn_param p = ev->param.conn;
        char private_data[256];

        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
                memcpy(private_data, p.private_data, p.private_data_len);
                p.private_data = private_data;
        }
        rdma_ack_cm_event(ev);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
                request(id, p);
        else if (c && type == RDMA_CM_EVENT_ESTABLISHED)
                c->up = true;
        else if (c && type == RDMA_CM_EVENT_DISCONNECTED)
                end_conn(c);
}

static void hello(struct conn *c, const struct node_hello *m)
{
        struct node_welcome w = { .h = header(NODE_WELCOME, sizeof(w)),
                                  .id = 4711,
                                  .limit = node.cfg->bytes,
                                  .free = node.cfg->bytes - node.leased,
                                  .grace_ms = 30000,
                                  .depth = node.cfg->depth,
                                  .name = "test" };
        if (fault("mute"))
                return;
        if (fault("refuses")) {
                refuse(c, NODE_EBUSY, "it likes no clients: ask another one");
                return;
        }
        if (fault("garbage")) {
                send_bytes(c, "what is this?", 13);
                return;
        }
        memset(w.nonce, 0x5a, sizeof(w.nonce));
        proof_secret(node.secret, NULL, 0, w.id, m->nonce, w.nonce);
        node.id = w.id;
        send_bytes(c, &w, sizeof(w));
}

static void cut(struct conn *c)
{
        struct node_plain done = { .h = header(NODE_DONE, sizeof(done)) };

        if (fault("late"))
                node.cut = node.request;
        else
                send_bytes(c, &done, sizeof(done));
}

static void answer_late(struct conn *c)
{
        struct node_plain done = { .h = header(NODE_DONE, sizeof(done)) };
        uint32_t now = node.request;

        node.request = node.cut;
        node.cut = 0;
        send_bytes(c, &done, sizeof(done));
        poll(NULL, 0, 200);             /* for the message to leave */
        node.request = now;
}

static void lease(struct conn *c, const struct node_lease *m)
{
        struct node_grant g = { .h = header(NODE_GRANT, sizeof(g)),
                                .slab = node.leased,
                                .address = (uintptr_t)node.memory + node.leased,
                                .bytes = m->bytes,
                                .rkey = node.mr->rkey };
        if (m->bytes > node.cfg->bytes - node.leased) {
                refuse(c, NODE_ENOSPC, "nothing is left");
                return;
        }
        node.leased += m->bytes;
        send_bytes(c, &g, sizeof(g));
}

static void message(struct conn *c, const char *m, uint32_t n)
{
        const struct node_header *h = (const void *)m;

        if (n < sizeof(*h) || h->magic != NODE_MAGIC || h->length != n)
                fail("a bad message of %u bytes", n);
        node.request = h->request;
        if (h->type == NODE_HELLO && n == sizeof(struct node_hello)) {
                hello(c, (const void *)m);
        } else if (h->type == NODE_LEASE && n == sizeof(struct node_lease)) {
                if (node.cut)
                        answer_late(c);
                lease(c, (const void *)m);
        } else if (h->type == NODE_CUT && n == sizeof(struct node_cut)) {
                cut(c);
        } else if (h->type == NODE_GOODBYE) {
                node.id = 0;
                rdma_disconnect(c->id);
        } else {
                fail("message of type %u, %u bytes", h->type, n);
        }
}

static void completions(void)
{
        struct ibv_cq *cq;
        struct ibv_wc wc;
        void *context;

        while (ibv_get_cq_event(node.comp, &cq, &context) == 0) {
                struct conn *c = context;
                ibv_ack_cq_events(cq, 1);
                ibv_req_notify_cq(cq, 0);
                while (ibv_poll_cq(cq, 1, &wc) > 0)
                        if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && c->id) {
                                message(c, node.messages[wc.wr_id], wc.byte_len);
                                post_receive(c, wc.wr_id);
                        }
        }
}

static void break_quietly(bool all)
{
        struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
        for (int i = 0; i < CONNS; i++)
                if (node.conns[i].id && (all || !node.conns[i].control))
                        ibv_modify_qp(node.conns[i].id->qp, &error, IBV_QP_STATE);
}

static void hang(int ms)
{
        break_quietly(true);
        node.silent = true;
        node.resume_ms = ms;
}

static void command(char what)
{
        struct node_plain m = { .h = header(NODE_GOODBYE, sizeof(m)) };

        switch (what) {
        case NODE_CMD_GOODBYE:
                for (int i = 0; i < CONNS; i++)
                        if (node.conns[i].id && node.conns[i].control)
                                send_bytes(&node.conns[i], &m, sizeof(m));
                poll(NULL, 0, 200);     /* for the message to leave */
                _exit(0);
        case NODE_CMD_DROP:
                end_conns(false, true);
                break;
        case NODE_CMD_CONTROL:
                end_conns(true, false);
                break;
        case NODE_CMD_STALL:
                break_quietly(false);
                break;
        case NODE_CMD_HANG:
                hang(1000);
                break;
        case NODE_CMD_HANG_LONG:
                hang(-1);
                break;
        case NODE_CMD_FORGET:
                node.id = 0;
                end_conns(true, true);
                break;
        case NODE_CMD_REVOKE:
                ibv_dereg_mr(node.mr);
                register_memory();      /* under another rkey */
                break;
        default:
                fail("command '%c'", what);
        }
}

static void listen_on(const struct node_config *cfg)
{
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(cfg->port) };
        struct rdma_cm_id *id;

        inet_pton(AF_INET, cfg->address, &at.sin_addr);
        node.events = rdma_create_event_channel();
        if (!node.events || rdma_create_id(node.events, &id, NULL, RDMA_PS_TCP) != 0 ||
            rdma_bind_addr(id, (struct sockaddr *)&at) != 0 || rdma_listen(id, 16) != 0)
                fail("listen on %s", cfg->address);
        fcntl(node.events->fd, F_SETFL, O_NONBLOCK);
}

void node_run(const struct node_config *cfg, int commands, int ready)
{
        struct rdma_cm_event *ev;
        char c;

        node.cfg = cfg;
        node.memory =
                mmap(NULL, cfg->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (node.memory == MAP_FAILED)
                fail("memory");
        listen_on(cfg);
        if (write(ready, "r", 1) != 1)
                fail("tell that it is ready");
        for (;;) {
                struct pollfd fds[3] = { { .fd = commands, .events = POLLIN },
                                         { .fd = node.events->fd, .events = POLLIN },
                                         { .fd = node.comp ? node.comp->fd : -1,
                                           .events = POLLIN } };
                int n = poll(fds, 3, node.silent ? node.resume_ms : -1);
                if (n == 0) {
                        node.silent = false;
                        continue;
                }
                if (node.comp)
                        completions();
                while (rdma_get_cm_event(node.events, &ev) == 0)
                        event(ev);
                if (fds[0].revents) {
                        if (read(commands, &c, 1) != 1)
                                _exit(0);
                        command(c);
                }
        }
}
