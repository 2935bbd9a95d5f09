/*
 * Fuzzes the control side of the RDMA server with libFuzzer: connection requests and messages
 * (memnode/rdma/parse.c, challenge.c, connect.c, control.c), and the clients and leases behind them
 * (client.c, lease.c, account.c, pool.c).  The network card is a fake, below, and so is the worker.
 * Built and run by ./run.
 *
 * Threat model. An attacker who reaches memnode's RDMA port chooses the private data of connection
 * requests and the bytes and lengths of messages, may open and drop connections in any order, read
 * no answers, and go silent. All clients share one process and one pool. What must hold:
 *   - no access outside the server's own memory, whatever a message says of its length;
 *   - a lease is whole pages within the pool, all zero when it is granted, registered in its
 *     client's protection domain only, and no two leases overlap; nothing in the domain of control
 *     connections may be reached from afar;
 *   - memory that goes back is no longer registered; the domains, queues and registrations of a
 *     client that ended are gone;
 *   - a connection is made only of a request with a proof, which was not there before, and with a
 *     cookie that memnode gave to that address not long ago; the acceptance has a proof, too;
 *   - every answer is a whole message of the protocol with text that ends; without HELLO there is
 *     no lease; a client has no more than its limit;
 *   - when all is over nothing is left behind, and the pool is whole.
 * Out of scope: the card itself, its driver and rdma_cm, which reject packets that are none before
 * memnode sees them; the data connections, on which the card checks addresses and keys
 * (test/rdma/run); the rate of requests (the clock here is the input's).
 *
 * An input is a script of steps of one byte and what it needs: see step().
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "common/clock.h"
#include "common/proof.h"
#include "memnode/admission/keyring.h"
#include "memnode/admission/party.h"
#include "memnode/memnode.h"
#include "memnode/pool.h"
#include "memnode/rdma/client.h"
#include "memnode/rdma/connect.h"
#include "memnode/rdma/connection.h"
#include "memnode/rdma/control.h"
#include "memnode/rdma/device.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: %s\n", what); abort(); } while (0)
#define POOL  (256ull << 10)
#define LIMIT (128ull << 10)
#define PEERS 6
#define QUEUE 64

struct memnode_options opt = {
        .hugepage = 4096, .max_per_client = LIMIT, .grace_ms = 3000, .verbose = true
};
static uint64_t clock_ms = 1;
int64_t now_ms(void) { return (int64_t)clock_ms; }

/* Their arguments are read, so that the sanitizers see them. */
static void format(const char *fmt, va_list ap)
{
        char line[1024];
        vsnprintf(line, sizeof(line), fmt, ap);
}
void warnx_(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        format(fmt, ap);
        va_end(ap);
}
void notice_(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        format(fmt, ap);
        va_end(ap);
}
void info_(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        format(fmt, ap);
        va_end(ap);
}

/* Each run of an input draws equal names. */
static uint64_t random_state;
ssize_t fuzz_getrandom(void *buf, size_t n, unsigned flags)
{
        (void)flags;
        for (size_t i = 0; i < n; i++) {
                random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
                ((uint8_t *)buf)[i] = (uint8_t)(random_state >> 56);
        }
        return (ssize_t)n;
}

/* --- the keys --- */

static bool keys_used;
static const struct key alice = { .name = "alice", .secret = "the secret of alice", .bytes = 19 };
bool keyring_is_used(void) { return keys_used; }
bool keyring_find_mark(uint64_t mark, struct key *k)
{
        if (mark == proof_mark(alice.name))
                *k = alice;
        return mark == proof_mark(alice.name);
}

/* --- the worker, whose jobs run when the script says --- */

/* Zeroing takes as long as the script says, not as a thread does. */
static bool zeroing;
char *__wrap_pool_try(uint64_t bytes, bool *soon);
char *__wrap_pool_try(uint64_t bytes, bool *soon)
{
        *soon = zeroing && bytes <= pool_left();
        return *soon ? NULL : pool_alloc(bytes);
}

static struct job *jobs, *over;         /* the next one last: see push() */
static void push(struct job **list, struct job *j)
{
        j->next = NULL;
        while (*list)
                list = &(*list)->next;
        *list = j;
}
static bool pull(struct job **list, const struct job *j)
{
        while (*list && *list != j)
                list = &(*list)->next;
        if (!*list)
                return false;
        *list = j->next;
        return true;
}
void worker_add(struct job *j) { push(&jobs, j); }
bool worker_drop(struct job *j)
{
        if (!j->ran && !j->must)
                return pull(&jobs, j);
        j->dropped = true;
        if (j->ran) {
                pull(&over, j);
                push(&jobs, j);
        }
        return false;
}
/* The oldest job; in a real one it may also run before the thread goes on. */
static void work(void)
{
        struct job *j = jobs;

        if (!j)
                return;
        jobs = j->next;
        if (!j->ran) {
                j->again = false;
                j->run(j);
        }
        if (j->again) {                 /* put off: its owner's others stay behind it */
                struct job *rest = jobs;
                jobs = NULL;
                for (int its = 0; its < 2; its++) {
                        if (its)
                                push(&jobs, j);
                        for (struct job **p = &rest; *p;) {
                                struct job *o = *p;
                                if ((o->owner == j->owner) != its) {
                                        p = &o->next;
                                        continue;
                                }
                                *p = o->next;
                                push(&jobs, o);
                        }
                }
                return;
        }
        j->ran = true;
        if (j->dropped)
                j->undo(j);
        else
                push(&over, j);
}
void worker_results(void)
{
        for (struct job *j; (j = over);) {
                over = j->next;
                j->done(j);
        }
}
void worker_wait(void)
{
        zeroing = false;
        while (jobs || over) {
                work();
                worker_results();
        }
}

/* --- the card --- */

static struct ibv_context verbs;
static struct device device = { .verbs = &verbs,
                                .attr = { .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16 } };
static unsigned live_pds, live_cqs, live_mrs, live_qps, live_ids;
static bool reg_fails, send_fails;

struct device *device_get(struct ibv_context *v) { return v == &verbs ? &device : NULL; }
const char *ibv_get_device_name(struct ibv_device *d) { return d ? "fake0" : "none"; }
const char *ibv_wc_status_str(enum ibv_wc_status s) { return s ? "an error" : "success"; }

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
        struct ibv_pd *pd = calloc(1, sizeof(*pd));
        pd->context = c;
        live_pds++;
        return pd;
}

/* Registrations, for the checks. */
struct fake_mr { struct ibv_mr mr; int access; struct fake_mr *next; };
static struct fake_mr *mrs;
static unsigned next_key = 1;

int ibv_dealloc_pd(struct ibv_pd *pd)
{
        for (struct fake_mr *m = mrs; m; m = m->next)
                if (m->mr.pd == pd)
                        FAIL("a protection domain ends before its registrations");
        live_pds--;
        free(pd);
        return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
        if (reg_fails) {
                errno = ENOMEM;
                return NULL;
        }
        struct fake_mr *m = calloc(1, sizeof(*m));
        bool remote = access &
                      (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
        m->mr = (struct ibv_mr){ &verbs, pd, addr, length, 0, next_key, next_key };
        next_key++;
        m->access = access;
        if (remote && pd == device.pd)
                FAIL("memory of control connections can be reached from afar");
        for (struct fake_mr *o = mrs; remote && o; o = o->next)
                if ((char *)o->mr.addr < (char *)addr + length &&
                    (char *)addr < (char *)o->mr.addr + o->mr.length)
                        FAIL("two registrations overlap");
        for (size_t i = 0; remote && i < length; i++)
                if (((char *)addr)[i])
                        FAIL("a lease that is not zero");
        if (remote)
                memset(addr, 0xa5, length);     /* what its client writes */
        m->next = mrs;
        mrs = m;
        live_mrs++;
        return &m->mr;
}
#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
        return reg_mr(pd, addr, length, access);
}
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned access)
{
        (void)iova;
        return reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
        struct fake_mr **p = &mrs;
        while (*p && &(*p)->mr != mr)
                p = &(*p)->next;
        struct fake_mr *m = *p;
        if (!m)
                FAIL("a registration is ended twice");
        *p = m->next;
        live_mrs--;
        free(m);
        return 0;
}

/* The posts of a queue pair, and the completions that its queue still holds. */
struct fake_cq { struct ibv_cq cq; struct ibv_wc wc[QUEUE]; unsigned n; };
struct peer {
        struct rdma_cm_id id;           /* memnode's; its end is this side's too */
        struct ibv_qp qp;
        bool used, accepted, rejected, control;
        struct { uint64_t wr; void *at; } receive[QUEUE];
        unsigned nreceives;
        uint64_t sent[QUEUE];           /* not completed yet */
        unsigned nsent;
        bool greeted;                   /* a WELCOME came */
        uint64_t slab;                  /* of the last GRANT */
        struct node_private ask;        /* as memnode gets it, if it is whole */
        uint32_t qpn;
        uint8_t nonce[NODE_NONCE];      /* of the last HELLO */
};
static struct peer *peers[PEERS];
/* of every WELCOME: a run has 300 steps */
static struct { uint64_t id; uint8_t secret[NODE_SECRET]; } known[512];
static unsigned nknown;
/* the last cookie of each address, and of what time */
static struct { uint64_t cookie, at; } given[4];
/* of connections: each may count once */
static uint8_t proofs[512][NODE_PROOF];
static unsigned nproofs;

/* The secret with which a request must be proved, of n bytes; NULL: it cannot be. */
static const uint8_t *secret_of(const struct node_private *p, size_t *n)
{
        bool is_alice = p->id == proof_mark(alice.name);

        *n = p->kind != NODE_NEW ? NODE_SECRET : keys_used ? alice.bytes : 0;
        if (p->kind == NODE_NEW)
                return keys_used ? (is_alice ? alice.secret : NULL) : p->id ? NULL : alice.secret;
        for (unsigned k = 0; k < nknown; k++)
                if (known[k].id == p->id)
                        return known[k].secret;
        return NULL;
}

static unsigned number_of(const struct peer *p)
{
        return ntohl(p->id.route.addr.dst_sin.sin_addr.s_addr) & 3;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *context,
                             struct ibv_comp_channel *ch, int v)
{
        struct fake_cq *f = calloc(1, sizeof(*f));
        (void)v;
        f->cq.context = c;
        f->cq.cq_context = context;
        f->cq.channel = ch;
        f->cq.cqe = cqe;
        live_cqs++;
        return &f->cq;
}
int ibv_destroy_cq(struct ibv_cq *cq)
{
        live_cqs--;
        free(cq);
        return 0;
}

static struct fake_cq *signalled;       /* what ibv_get_cq_event() gives next */
int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
        (void)ch;
        if (!signalled) {
                errno = EAGAIN;
                return -1;
        }
        *cq = &signalled->cq;
        *context = signalled->cq.cq_context;
        signalled = NULL;
        return 0;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) { (void)cq, (void)n; }

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
        struct fake_cq *f = (struct fake_cq *)cq;
        if (n < 1 || !f->n)
                return 0;
        *wc = f->wc[0];
        memmove(f->wc, f->wc + 1, --f->n * sizeof(f->wc[0]));
        return 1;
}
static int req_notify_cq(struct ibv_cq *cq, int solicited) { (void)cq, (void)solicited; return 0; }
static void complete(struct ibv_cq *cq, uint64_t wr, enum ibv_wc_status status, size_t bytes)
{
        struct fake_cq *f = (struct fake_cq *)cq;
        if (f->n == QUEUE)
                FAIL("more completions than a queue can have");
        f->wc[f->n++] =
                (struct ibv_wc){ .wr_id = wr, .status = status, .byte_len = (uint32_t)bytes };
}

static void registered(const struct ibv_sge *s, const struct ibv_pd *pd)
{
        for (struct fake_mr *m = mrs; m; m = m->next)
                if (m->mr.lkey == s->lkey && m->mr.pd == pd && s->addr >= (uintptr_t)m->mr.addr &&
                    s->addr + s->length <= (uintptr_t)m->mr.addr + m->mr.length)
                        return;
        FAIL("a buffer that is not registered");
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
        struct peer *p = qp->qp_context;
        (void)bad;
        if (p->nreceives == RECEIVES || wr->num_sge != 1 || wr->sg_list->length > NODE_MESSAGE_MAX)
                FAIL("more receives than the queue pair has room for");
        registered(wr->sg_list, qp->pd);
        p->receive[p->nreceives].wr = wr->wr_id;
        p->receive[p->nreceives++].at = (void *)(uintptr_t)wr->sg_list->addr;
        return 0;
}

/* Checks an answer as the client would read it. */
static void answer(struct peer *p, const struct node_header *h, size_t n)
{
        static const size_t size[] = { [NODE_WELCOME] = sizeof(struct node_welcome),
                                       [NODE_REFUSED] = sizeof(struct node_refused),
                                       [NODE_GRANT] = sizeof(struct node_grant),
                                       [NODE_DONE] = sizeof(struct node_plain),
                                       [NODE_DRAIN] = sizeof(struct node_plain),
                                       [NODE_GOODBYE] = sizeof(struct node_plain) };

        if (h->magic != NODE_MAGIC || h->version != NODE_VERSION ||
            h->type >= sizeof(size) / sizeof(size[0]) || !size[h->type] || n != size[h->type] ||
            h->length != n)
                FAIL("an answer that is no message");
        const struct node_refused *r = (const void *)h;
        if (h->type == NODE_REFUSED && (!r->error || r->error > NODE_ENOKEYS || !r->text[0] ||
                                        !memchr(r->text, 0, sizeof(r->text))))
                FAIL("a refusal without a reason");
        const struct node_welcome *w = (const void *)h;
        if (h->type == NODE_WELCOME) {
                if (p->greeted || !w->id || !memchr(w->name, 0, sizeof(w->name)) ||
                    w->limit > LIMIT)
                        FAIL("not a WELCOME");
                p->greeted = true;
                known[nknown].id = w->id;
                proof_secret(known[nknown++].secret, alice.secret, keys_used ? alice.bytes : 0,
                             w->id, p->nonce, w->nonce);
        }
        const struct node_grant *g = (const void *)h;
        if (h->type == NODE_GRANT) {
                bool found = false;
                for (struct fake_mr *m = mrs; m; m = m->next)
                        found |= m->mr.rkey == g->rkey && (uintptr_t)m->mr.addr == g->address &&
                                 m->mr.length == g->bytes;
                if (!p->greeted || !found || !g->bytes || g->bytes % 4096 || g->bytes > LIMIT)
                        FAIL("a GRANT of what is not registered, or to a stranger");
                p->slab = g->slab;
        }
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
        struct peer *p = qp->qp_context;
        (void)bad;
        if (send_fails)
                return ENOMEM;
        if (p->nsent == SENDS + 1)
                FAIL("more sends than the queue pair has room for");
        p->sent[p->nsent++] = wr->wr_id;
        if (wr->opcode == IBV_WR_SEND) {
                registered(wr->sg_list, qp->pd);
                answer(p, (const void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
        } else if (wr->opcode != IBV_WR_RDMA_WRITE || wr->num_sge) {
                FAIL("neither an answer nor a probe");
        }
        return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
        struct peer *p = (struct peer *)id;
        p->qp = (struct ibv_qp){ .context = &verbs,
                                 .qp_context = p,
                                 .pd = pd,
                                 .send_cq = a->send_cq,
                                 .recv_cq = a->recv_cq };
        id->qp = &p->qp;
        p->control = pd == device.pd;
        live_qps++;
        return 0;
}
void rdma_destroy_qp(struct rdma_cm_id *id)
{
        id->qp = NULL;
        live_qps--;
}
/* Whether memnode may accept it. */
static void is_proved(const struct peer *p)
{
        uint8_t address[PROOF_ADDRESS];
        unsigned i = number_of(p);
        size_t n;
        const uint8_t *secret = secret_of(&p->ask, &n);

        proof_address(address, &p->id.route.addr.dst_addr);
        if (!secret || !proof_request_holds(&p->ask, address, p->qpn, secret, n))
                FAIL("accepted without a proof");
        if (p->ask.cookie != given[i].cookie || clock_ms - given[i].at >= 20000)
                FAIL("accepted without a cookie");
        for (unsigned k = 0; n && k < nproofs; k++)
                if (memcmp(proofs[k], p->ask.proof, NODE_PROOF) == 0)
                        FAIL("a proof counts twice");
        memcpy(proofs[nproofs++], p->ask.proof, NODE_PROOF);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
        struct peer *p = (struct peer *)id;
        struct node_private a;
        size_t n;
        if (param->private_data_len != sizeof(a))
                FAIL("accepted without private data");
        memcpy(&a, param->private_data, sizeof(a));
        if (a.magic != NODE_MAGIC || a.version != NODE_VERSION || a.length != sizeof(a) ||
            a.depth > DEPTH_MAX)
                FAIL("accepted with private data that is none");
        is_proved(p);
        const uint8_t *secret = secret_of(&p->ask, &n);
        if (!proof_answer_holds(&a, p->ask.proof, secret, n))
                FAIL("an acceptance without a proof");
        p->accepted = true;
        return 0;
}
static bool again;                      /* the last request lacked a cookie */
int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
        struct node_private a;
        if (len != sizeof(a))
                FAIL("rejected without private data");
        memcpy(&a, data, sizeof(a));
        if (a.magic != NODE_MAGIC || !a.kind || a.kind > NODE_ENOKEYS)
                FAIL("rejected without a reason");
        for (unsigned i = 0; i < NODE_PROOF; i++)
                if (a.proof[i])
                        FAIL("a proof in a rejection");
        if ((a.kind == NODE_ECOOKIE) != (a.cookie != 0))
                FAIL("a cookie without being asked for, or none");
        struct peer *p = (struct peer *)id;
        p->rejected = true;
        again = a.kind == NODE_ECOOKIE;
        if (again) {
                given[number_of(p)].cookie = a.cookie;
                given[number_of(p)].at = clock_ms / 10000 * 10000;
        }
        return 0;
}
int rdma_disconnect(struct rdma_cm_id *id) { (void)id; return 0; }
int rdma_destroy_id(struct rdma_cm_id *id)
{
        struct peer *p = (struct peer *)id;
        if (id->qp)
                FAIL("an id ends before its queue pair");
        for (unsigned i = 0; i < PEERS; i++)
                if (peers[i] == p)
                        peers[i] = NULL;
        live_ids--;
        free(p);
        return 0;
}
int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t n)
{
        (void)id, (void)level, (void)name, (void)v, (void)n;
        return 0;
}
const char *rdma_event_str(enum rdma_cm_event_type e)
{
        return e == RDMA_CM_EVENT_REJECTED ? "rejected" : "event";
}

/* --- the script --- */

struct reader { const uint8_t *p; size_t left; };
static unsigned byte(struct reader *r) { return r->left ? r->left--, *r->p++ : 0; }
static size_t bytes(struct reader *r, void *to, size_t n)
{
        n = n < r->left ? n : r->left;
        memcpy(to, r->p, n);
        r->p += n;
        r->left -= n;
        return n;
}

static struct { uint8_t raw[255]; size_t len; uint32_t qpn; unsigned from; } asked;

/* Sends `asked` as peer i. */
static void ask(unsigned i, unsigned how)
{
        struct peer *peer = calloc(1, sizeof(*peer));
        uint8_t *copy = malloc(asked.len ? asked.len : 1);

        memcpy(copy, asked.raw, asked.len);
        memcpy(&peer->ask, asked.raw, sizeof(peer->ask));
        peer->qpn = asked.qpn;
        peer->id.verbs = &verbs;
        peer->id.route.addr.dst_sin = (struct sockaddr_in){
                .sin_family = AF_INET, .sin_addr = { htonl(0x0a000000u | asked.from) }
        };
        peers[i] = peer;
        live_ids++;
        again = false;
        struct rdma_conn_param param = { .private_data = asked.len ? copy : NULL,
                                         .private_data_len = (uint8_t)asked.len,
                                         .responder_resources = (uint8_t)how,
                                         .initiator_depth = 1,
                                         .qp_num = asked.qpn };
        connection_event(&peer->id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &param);
        free(copy);
        if (peers[i] != peer)
                return;
        if (!peer->accepted || asked.len < sizeof(peer->ask))
                FAIL("a request that is neither accepted nor rejected, or not whole");
        peer->greeted = peer->ask.kind != NODE_NEW;     /* then its client has said HELLO before */
}

/* more: bits 0 and 1 choose the address; 2: a field changes before the proof is made; 3: after it;
 * 4: no right secret is known; 5: the cookie stays as it is; 6: the last request comes again, from
 * there; 7: over the same queue pair. */
static void connect_peer(struct reader *r, unsigned i)
{
        struct node_private p = {
                NODE_MAGIC, NODE_VERSION, sizeof(p), NODE_NEW, 8, 1, 1, 0, { 0 }, 0
        };
        unsigned how = byte(r), more = byte(r);
        uint8_t address[PROOF_ADDRESS];
        struct sockaddr_in from = { .sin_family = AF_INET };
        size_t n;

        if (peers[i])
                return;
        asked.from = more & 3;
        asked.qpn += !(more & 0x80);
        if (more & 0x40) {
                ask(i, how);
                return;
        }
        p.member = 1 + (how >> 7);
        p.generation = 1 + how % 5;
        p.id = keys_used ? proof_mark(alice.name) : 0;
        if (how & 2 && nknown) {
                unsigned k = nknown - 1 - (how >> 4 & 7) % nknown;
                p.kind = how & 1 ? NODE_DATA : NODE_CONTROL;
                p.id = known[k].id;
        }
        if (more & 4)
                ((uint8_t *)&p)[byte(r) % sizeof(p)] ^= (uint8_t)byte(r);
        unsigned changed = more & 8 ? byte(r) % sizeof(p) : 0, by = more & 8 ? byte(r) : 0;
        size_t len = how & 8 ? bytes(r, asked.raw, byte(r)) : 56;
        from.sin_addr.s_addr = htonl(0x0a000000u | asked.from);
        proof_address(address, (struct sockaddr *)&from);
        for (unsigned tries = 0; tries < 2; tries++) {
                const uint8_t *secret = secret_of(&p, &n);
                if (!(more & 0x20))
                        p.cookie = given[asked.from].cookie;
                proof_request(&p, address, asked.qpn, secret && !(more & 0x10) ? secret : address,
                              secret ? n : PROOF_ADDRESS);
                if (!(how & 8))
                        memcpy(asked.raw, &p, sizeof(p));
                asked.len = len;        /* as rdma_cm pads it, or cut */
                asked.raw[changed] ^= (uint8_t)by;
                ask(i, how);
                if (!again || peers[i])
                        return;
        }
}

static void event(unsigned i, enum rdma_cm_event_type type)
{
        struct rdma_conn_param param = { 0 };
        if (peers[i])
                connection_event(&peers[i]->id, type, -1, &param);
}

/* Tells memnode that the completion queue of peer i has something, unless the event is late: then
 * the clock finds it. */
static bool events_late;
static void wake(unsigned i)
{
        if (!peers[i] || !peers[i]->control || events_late)
                return;
        signalled = (struct fake_cq *)peers[i]->qp.recv_cq;
        control_completions(&device);
}

static void send_to(struct reader *r, unsigned i, unsigned how)
{
        union {
                struct node_header h;
                struct node_hello hello;
                struct node_lease lease;
                struct node_release release;
                struct node_find find;
                struct node_cut cut;
                struct node_moved moved;
                uint8_t raw[NODE_MESSAGE_MAX];
        } m;
        static const size_t size[] = { [NODE_HELLO] = sizeof(m.hello),
                                       [NODE_LEASE] = sizeof(m.lease),
                                       [NODE_RELEASE] = sizeof(m.release),
                                       [NODE_FIND] = sizeof(m.find),
                                       [NODE_GOODBYE] = sizeof(struct node_plain),
                                       [NODE_CUT] = sizeof(m.cut),
                                       [NODE_MOVED] = sizeof(m.moved) };
        static const uint8_t types[] = { NODE_HELLO, NODE_LEASE, NODE_RELEASE, NODE_GOODBYE };
        struct peer *p = peers[i];
        unsigned type = types[how >> 3 & 3], what = byte(r);
        if (type == NODE_GOODBYE && what & 0x80)
                type = what & 0x40 ? NODE_MOVED : NODE_CUT;
        if (type == NODE_RELEASE && what & 0x40)
                type = NODE_FIND;
        size_t len = size[type];

        if (!p || !p->control || !p->nreceives)
                return;                 /* the card would wait: nothing arrives */
        memset(&m, 0, sizeof(m));
        m.h = (struct node_header){ NODE_MAGIC, NODE_VERSION, (uint16_t)type, (uint32_t)len, 0 };
        if (type == NODE_HELLO) {
                memset(m.hello.name, (int)(what | 1), what % 65);
                memset(m.hello.nonce, (int)what, sizeof(m.hello.nonce));
        }
        if (type == NODE_LEASE)
                m.lease.bytes = what < 200 ? (what % 40) * 4096ull : (uint64_t)what << (what & 63);
        if (type == NODE_RELEASE || type == NODE_FIND)
                m.release.slab = what < 128 ? p->slab : what;
        if (type == NODE_MOVED)
                m.moved.moved = what % 3;
        if (type == NODE_CUT) {
                m.cut.count = what % 5;
                for (unsigned k = 0; k < m.cut.count; k++) {
                        m.cut.range[k].first = byte(r) % 4;
                        m.cut.range[k].last = m.cut.range[k].first + byte(r) % 4;
                }
        }
        if (how & 0x20)
                m.raw[byte(r)] ^= (uint8_t)byte(r);
        if (how & 0x40)
                len = byte(r) * 2;
        if (how & 0x80)
                len = bytes(r, m.raw, len);
        if (len > NODE_MESSAGE_MAX)
                len = NODE_MESSAGE_MAX; /* the card ends a connection whose message does not fit */
        memcpy(p->receive[0].at, &m, len);
        memcpy(p->nonce, m.hello.nonce, sizeof(p->nonce));
        complete(p->qp.recv_cq, p->receive[0].wr, IBV_WC_SUCCESS, len);
        memmove(p->receive, p->receive + 1, --p->nreceives * sizeof(p->receive[0]));
        wake(i);
}

/* The client's card has taken the oldest message that was sent, or has not. */
static void take_sent(unsigned i, enum ibv_wc_status status)
{
        struct peer *p = peers[i];
        if (!p || !p->control || !p->nsent)
                return;
        complete(p->qp.send_cq, p->sent[0], status, 0);
        memmove(p->sent, p->sent + 1, --p->nsent * sizeof(p->sent[0]));
        wake(i);
}

static void tick(uint64_t ms)
{
        clock_ms += ms;
        connections_tick(clock_ms);
        client_tick(clock_ms);
}

static void step(struct reader *r)
{
        unsigned what = byte(r), i = byte(r);

        if (!(i & 0x80)) {              /* the worker is fast, most of the time */
                work();
                worker_results();
        } else if (i & 0x40) {
                work();
        }
        i %= PEERS;

        switch (what & 7) {
        case 0: case 1: send_to(r, i, what); break;
        case 2: connect_peer(r, i); break;
        case 3:
                event(i, what & 8    ? RDMA_CM_EVENT_DISCONNECTED
                         : what & 16 ? RDMA_CM_EVENT_UNREACHABLE
                                     : RDMA_CM_EVENT_ESTABLISHED);
                break;
        case 4: take_sent(i, what & 0x80 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS); break;
        case 5: tick((what >> 3) * 400u); break;
        case 6: worker_results(), reg_fails = what & 8, rdma_draining |= what & 16,
                zeroing = what & 32; break;
        default: send_fails = what & 8; events_late = what & 16; break;
        }
}

/* After every step the server's own counts must be right. */
static void check_all(void)
{
        unsigned nclients = 0;

        for (struct client *c = clients; c; c = c->next) {
                unsigned controls = 0;
                nclients++;
                for (struct connection *k = connections; k; k = k->next) {
                        controls += k->client == c && k->kind == NODE_CONTROL;
                        for (struct connection *l = k->next; l; l = l->next)
                                if (k->client == c && l->client == c && k->kind == NODE_CONTROL &&
                                    l->kind == NODE_CONTROL && k->member == l->member)
                                        FAIL("a member of a client has two control connections");
                }
                if (controls != c->controls)
                        FAIL("a client and its connections disagree");
        }
        for (struct connection *c = connections; c; c = c->next) {
                bool known = c->kind == NODE_CONTROL && !c->client;
                for (struct client *k = clients; k; k = k->next)
                        known |= c->client == k;
                if (!known)
                        FAIL("a connection of a client that is no more");
        }
        if (nclients != atomic_load(&rdma_counts.clients))
                FAIL("the counts are wrong");
        if (live_pds < nclients + 1 || (live_pds != nclients + 1 && !jobs && !over))
                FAIL("protection domains and clients are not as many");
}

/* No connection counts for a party any more: one has as many as there are for one. */
static void all_is_given_back(void)
{
        struct party *p = party_of_origin("fuzz");
        unsigned n = 0;

        while (party_connect(p, true))
                n++;
        for (unsigned i = 0; i < n; i++)
                party_disconnect(p);
        party_put(p);
        if (n != PARTY_ORIGIN_PART(PARTY_CONNECTIONS))
                FAIL("connections count that are no more");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct reader r = { data, size };
        char why[512];

        if (!device.pd) {
                verbs.ops = (struct ibv_context_ops){ .poll_cq = poll_cq,
                                                      .req_notify_cq = req_notify_cq,
                                                      .post_send = post_send,
                                                      .post_recv = post_recv };
                device.pd = ibv_alloc_pd(&verbs);
                device.idle = ibv_create_cq(&verbs, 1, NULL, NULL, 0);
                if (pool_open(POOL, 4096, why, sizeof(why)) != 0)
                        FAIL(why);
        }
        random_state = nknown = nproofs = 0;
        memset(given, 0, sizeof(given));
        memset(&asked, 0, sizeof(asked));
        rdma_draining = false;
        keys_used = size && data[size - 1] & 1;
        if (!connect_begin())
                FAIL("no random numbers");
        for (unsigned steps = 0; r.left && steps < 300; steps++) {
                step(&r);
                connections_reap();
                check_all();
        }
        reg_fails = send_fails = events_late = false;
        signalled = NULL;
        if (size & 1)
                worker_wait();
        while (clients)
                client_end(clients);
        while (connections)
                connection_end(connections);
        connections_reap();
        worker_wait();
        check_all();
        all_is_given_back();
        if (live_mrs || live_qps || live_ids || live_cqs != 1 || atomic_load(&rdma_counts.leases) ||
            pool_left() != POOL)
                FAIL("something is left behind");
        return 0;
}
