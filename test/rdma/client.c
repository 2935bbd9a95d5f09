/*
 * A client of memnode over RDMA for tests: carries out its arguments, one after the other, and ends
 * with status 1 and a sentence at the first thing that is not as it should be.
 *
 *      client ADDRESS[:PORT] VERB [ARGUMENT...]...
 *
 *      key NAME:HEX            from now on; `key -`: without one, as at first
 *      connect                 control connection; it must be accepted
 *      connect-denied ERROR    it must be rejected with ERROR
 *      again N                 so many requests with the proof, queue pair number and cookie of the
 *                              last connection must all be rejected
 *      old                     a control connection as version 5 asks for it must be rejected, so
 *                              that version 5 understands it
 *      hello                   HELLO; WELCOME must come
 *      data                    one more data connection
 *      data-denied ERROR       a data connection with a wrong secret must be rejected with ERROR
 *      data-refused ERROR      a data connection with the right secret must be rejected with ERROR
 *      rejoin / rejoin-denied ERROR    a control connection with the id and secret of before, of
 *                              the next generation
 *      member N, generation N  from now on; the next control connection is of generation N + 1
 *      keep                    lays both connections aside as they are
 *      off                     a WRITE over the data connection laid aside must fail
 *      cut FIRST LAST          DONE must come
 *      lease BYTES             GRANT must come; slabs are numbered from 0 in this order; prints
 *                              slab, address, key
 *      release N               DONE must come
 *      find N                  GRANT must come, of as many bytes; from then on slab N is there
 *      restarts N              the last connection was accepted with this number of restarts
 *      refused ERROR VERB...   the reply to hello, lease, release or find (which follows) must be
 *                              REFUSED with this number
 *      fill N SEED             WRITEs a pattern over slab N
 *      verify N SEED           READs it and compares; SEED 0: all zero
 *      forged N DELTA KEYXOR   a READ and a WRITE outside the lease must fail; address + DELTA,
 *                              rkey ^ KEYXOR.  Breaks the data connection
 *      reach ADDRESS KEY       like forged, with an address and key that another client printed
 *      own-key N ADDRESS       like forged, with such an address and the key of slab N
 *      raw HEX                 SENDs these bytes
 *      junk N SEED             SENDs N messages of random bytes, until the connection ends
 *      flood N                 SENDs N LEASEs of too much without taking answers, until the
 *                              connection ends
 *      ended                   memnode must end the control connection within 10 s
 *      goodbye                 says so and waits for the end of the connection
 *      byebye SECONDS          a GOODBYE of memnode must come in that time
 *      asked SECONDS           a DRAIN of memnode must come in that time
 *      moved 0|1               says that it cannot move, or has; DONE must come
 *      drop                    ends all connections without a word
 *      traffic SECONDS         READs and WRITEs of 4 KiB over slab 0, prints how many a second
 *      storm KIND SECONDS      STORM_RATE requests a second, all of which must be rejected; prints
 *                              how many. bare: as one who comes, without a cookie; guess: with its
 *                              cookie and a guessed key; unknown: as a client that is not there;
 *                              replay: the last request that was not of a storm; garbage: random
 *                              bytes, half of them behind a right beginning
 *      secret                  prints the client's secret
 *      say TEXT / wait         prints TEXT / waits for a line on standard input
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/keys.h"
#include "common/proof.h"

#define WAIT_MS  10000
#define CHUNK    (256ul << 10)
#define SLABS    64
#define RECEIVES 8
#define STORM_QPN  0x123456             /* a storm has no queue pairs */
#define STORM_RATE 200

static struct sockaddr_storage server;
static struct rdma_event_channel *channel;

struct link {
        struct rdma_cm_id *id;
        struct ibv_cq *cq;
        bool up, ended;
};
static struct link control, data, kept_control, kept;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char *memory;                    /* RECEIVES + 1 messages, then CHUNK bytes for data */
#define DATA_AT ((RECEIVES + 1) * NODE_MESSAGE_MAX)

static struct node_welcome me;
static uint8_t secret[NODE_SECRET];     /* with `me` */
static struct key key;
static uint64_t cookie;                 /* the last one that memnode gave */
static struct node_grant slab[SLABS];
static unsigned nslabs;
static uint64_t member = 1;
static uint32_t generation;             /* of the control connection */
static unsigned want_refused;           /* the next reply must be REFUSED with this */

_Noreturn static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn static void fail(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        fputs("client: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
        va_end(ap);
        exit(1);
}

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- connections --- */

/* The next event within the time; its type, or -1.  Copies private data. */
static int event(int timeout_ms, struct rdma_cm_id **id, struct node_private *p)
{
        struct pollfd f = { .fd = channel->fd, .events = POLLIN };
        struct rdma_cm_event *e;

        if (poll(&f, 1, timeout_ms) <= 0)
                return -1;
        if (rdma_get_cm_event(channel, &e) != 0)
                fail("rdma_get_cm_event: %s", strerror(errno));
        int type = e->event;
        if (id)
                *id = e->id;
        memset(p, 0, sizeof(*p));
        if ((type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_REJECTED) &&
            e->param.conn.private_data && e->param.conn.private_data_len >= sizeof(*p))
                memcpy(p, e->param.conn.private_data, sizeof(*p));
        if (type == RDMA_CM_EVENT_DISCONNECTED) {
                if (e->id == control.id)
                        control.ended = true;
                if (e->id == data.id)
                        data.ended = true;
        }
        rdma_ack_cm_event(e);
        return type;
}

static void expect_event(int type)
{
        struct node_private p;
        int got;
        do                              /* the end of older connections may come first */
                got = event(WAIT_MS, NULL, &p);
        while (got == RDMA_CM_EVENT_TIMEWAIT_EXIT || got == RDMA_CM_EVENT_DISCONNECTED);
        if (got != type)
                fail("expected %s, got %s", rdma_event_str(type),
                     got < 0 ? "nothing" : rdma_event_str(got));
}

static void make_memory(struct ibv_context *verbs)
{
        if (pd)
                return;
        pd = ibv_alloc_pd(verbs);
        memory = aligned_alloc(4096, DATA_AT + CHUNK);
        mr = pd && memory ? ibv_reg_mr(pd, memory, DATA_AT + CHUNK, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (!mr)
                fail("cannot register memory: %s", strerror(errno));
}

static void post_receive(unsigned i)
{
        struct ibv_sge sge = { (uintptr_t)memory + i * NODE_MESSAGE_MAX, NODE_MESSAGE_MAX,
                               mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
        if (ibv_post_recv(control.id->qp, &wr, &bad) != 0)
                fail("ibv_post_recv: %s", strerror(errno));
}

static unsigned restarts;               /* as the last acceptance says */

/* Finds the address and the route. */
static void resolve(struct link *l)
{
        memset(l, 0, sizeof(*l));
        if (rdma_create_id(channel, &l->id, NULL, RDMA_PS_TCP) != 0 ||
            rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&server, 2000) != 0)
                fail("cannot resolve: %s", strerror(errno));
        expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
        if (rdma_resolve_route(l->id, 2000) != 0)
                fail("cannot find a route: %s", strerror(errno));
        expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* As far as to connect: address, route, queue pair. */
static void prepare(struct link *l)
{
        struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC,
                                       .sq_sig_all = 1,
                                       .cap = { 64, RECEIVES, 1, 1, 0 } };
        uint8_t timeout = 14;

        resolve(l);
        make_memory(l->id->verbs);
        rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1);
        l->cq = ibv_create_cq(l->id->verbs, 256, NULL, NULL, 0);
        qp.send_cq = qp.recv_cq = l->cq;
        if (!l->cq || rdma_create_qp(l->id, pd, &qp) != 0)
                fail("cannot make a queue pair: %s", strerror(errno));
        if (l == &control)
                for (unsigned i = 0; i < RECEIVES; i++)
                        post_receive(i);
}

/* Asks with n bytes.  True: accepted; *answer is what came with that, or with the rejection. */
static bool ask_for(struct link *l, const void *bytes, size_t n, struct node_private *answer)
{
        struct rdma_conn_param param = { .private_data = bytes,
                                         .private_data_len = (uint8_t)n,
                                         .responder_resources = 16,
                                         .initiator_depth = 16,
                                         .retry_count = 6,
                                         .rnr_retry_count = 7,
                                         .qp_num = STORM_QPN };     /* where there is none */
        int type;

        if (rdma_connect(l->id, &param) != 0)
                fail("cannot connect: %s", strerror(errno));
        do                              /* the end of older connections may come first */
                type = event(WAIT_MS, NULL, answer);
        while (type == RDMA_CM_EVENT_TIMEWAIT_EXIT || type == RDMA_CM_EVENT_DISCONNECTED);
        if (type != RDMA_CM_EVENT_ESTABLISHED && type != RDMA_CM_EVENT_REJECTED)
                fail("no connection: %s", type < 0 ? "nothing came" : rdma_event_str(type));
        l->up = type == RDMA_CM_EVENT_ESTABLISHED;
        return l->up;
}

static struct node_private last;        /* the request of the last connection that was tried */

/* 0, or the error of the rejection.  The secret: n bytes. */
static unsigned try_link(struct link *l, struct node_private *p, const void *with, size_t n)
{
        uint8_t address[PROOF_ADDRESS];
        struct node_private a;

        prepare(l);
        proof_address(address, rdma_get_local_addr(l->id));
        p->cookie = cookie;
        proof_request(p, address, l->id->qp->qp_num, with, n);
        last = *p;
        if (!ask_for(l, p, sizeof(*p), &a)) {
                cookie = a.kind == NODE_ECOOKIE ? a.cookie : cookie;
                return a.magic == NODE_MAGIC ? a.kind : 1000;
        }
        if (a.magic != NODE_MAGIC || a.version != NODE_VERSION || a.kind != p->kind ||
            a.length != sizeof(a))
                fail("accepted with private data that is not of the protocol");
        if (!proof_answer_holds(&a, p->proof, with, n))
                fail("accepted without a proof");
        cookie = a.cookie;
        restarts = a.generation;
        return 0;
}

static void end_link(struct link *l)
{
        if (!l->id)
                return;
        if (l->up)
                rdma_disconnect(l->id);
        rdma_destroy_qp(l->id);
        ibv_destroy_cq(l->cq);
        rdma_destroy_id(l->id);
        memset(l, 0, sizeof(*l));
}

static void connect_as(struct link *l, enum node_kind kind, bool wrong_secret, unsigned expected)
{
        struct node_private p = { .magic = NODE_MAGIC,
                                  .version = NODE_VERSION,
                                  .length = sizeof(p),
                                  .kind = (uint16_t)kind,
                                  .depth = 64,
                                  .generation = kind == NODE_DATA ? generation : ++generation,
                                  .member = member,
                                  .id = kind != NODE_NEW ? me.id
                                        : *key.name      ? proof_mark(key.name)
                                                         : 0 };
        unsigned error;
        uint8_t with[KEY_SECRET_MAX];
        size_t n = kind == NODE_NEW ? key.bytes : sizeof(secret);

        memcpy(with, kind == NODE_NEW ? key.secret : secret, n);
        with[3] ^= wrong_secret;
        unsigned tries = 0;
        const double end = now() + WAIT_MS / 1e3;
        do {
                if (l->id)
                        end_link(l);
                error = try_link(l, &p, with, n);
                if (error == NODE_EBUSY)
                        poll(NULL, 0, 100);
        } while ((error == NODE_ECOOKIE && !tries++) ||         /* as vmrun asks again, too */
                 (error == NODE_EBUSY && expected != NODE_EBUSY && now() < end));
        if (error != expected)
                fail("connecting: error %u, expected %u", error, expected);
        if (error)
                end_link(l);
}

/* The request of the last connection, on queue pairs of other numbers: they would be whose proof it
 * is not. */
static void again(unsigned n)
{
        struct node_private a;

        for (struct link l; n--; end_link(&l)) {
                prepare(&l);
                if (ask_for(&l, &last, sizeof(last), &a))
                        fail("a request that is not its own was accepted");
        }
}

static void fill_random(void *to, size_t n)
{
        for (unsigned char *c = to; n--; c++)
                *c = (unsigned char)rand();
}

/* A stranger's request of that kind; its bytes. */
static size_t strange_request(const char *kind, const uint8_t address[PROOF_ADDRESS],
                              struct node_private *p)
{
        const bool bare = !strcmp(kind, "bare"), unknown = !strcmp(kind, "unknown");
        uint8_t guess[KEY_SECRET_MIN];

        if (!strcmp(kind, "replay"))
                *p = last;
        else if (!strcmp(kind, "garbage")) {
                fill_random(p, sizeof(*p));
                if (rand() % 2)
                        p->magic = NODE_MAGIC, p->version = NODE_VERSION, p->length = sizeof(*p);
                return (size_t)rand() % (sizeof(*p) + 1);
        } else if (bare || unknown || !strcmp(kind, "guess")) {
                *p = (struct node_private){ NODE_MAGIC, NODE_VERSION, sizeof(*p),
                                            unknown ? 1 + rand() % 2 : NODE_NEW, 64, 1, 1,
                                            unknown ? (uint64_t)rand() : proof_mark(key.name),
                                            { 0 }, bare ? (uint64_t)rand() : cookie };
                fill_random(guess, sizeof(guess));
                proof_request(p, address, STORM_QPN, guess, sizeof(guess));
        } else
                fail("%s: no such storm", kind);
        return sizeof(*p);
}

static void storm(const char *kind, double seconds)
{
        const double begin = now();
        uint8_t address[PROOF_ADDRESS];
        struct node_private p, a;
        unsigned long n = 0;

        srand((unsigned)getpid());
        for (double t; (t = now() - begin) < seconds; n++) {
                struct link l;

                if ((double)n > t * STORM_RATE)
                        poll(NULL, 0, 5);
                resolve(&l);
                proof_address(address, rdma_get_local_addr(l.id));
                if (ask_for(&l, &p, strange_request(kind, address, &p), &a))
                        fail("a stranger was accepted");
                if (a.kind == NODE_ECOOKIE)
                        cookie = a.cookie;
                rdma_destroy_id(l.id);
        }
        printf("storm of %s: %lu in %.0f s\n", kind, n, seconds);
}

static void old(void)
{
        struct { uint32_t magic; uint16_t version, length, kind, depth; uint32_t generation;
                 uint64_t member, id; uint8_t secret[16]; } p = {
                NODE_MAGIC, 5, sizeof(p), NODE_CONTROL, 64, 1, 1, 0, { 0 }
        };
        struct node_private a;
        struct link l;

        prepare(&l);
        if (ask_for(&l, &p, sizeof(p), &a))
                fail("version 5 was accepted");
        if (a.magic != NODE_MAGIC || a.version != NODE_VERSION || a.length != sizeof(p) ||
            a.kind != NODE_EVERSION)
                fail("version 5 does not understand the rejection");
        end_link(&l);
}

/* --- control messages --- */

/* The next completion of a link within the time; false: none. */
static bool completion(struct link *l, int timeout_ms, struct ibv_wc *wc)
{
        double end = now() + timeout_ms / 1e3;
        int n;

        while ((n = ibv_poll_cq(l->cq, 1, wc)) == 0 && now() < end)
                poll(NULL, 0, 1);
        return n == 1;
}

static void send_bytes(const void *bytes, size_t len)
{
        struct ibv_sge sge = { (uintptr_t)memory + RECEIVES * NODE_MESSAGE_MAX, (uint32_t)len,
                               mr->lkey };
        struct ibv_send_wr wr = { .wr_id = 1000,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND },
                           *bad;

        memcpy(memory + RECEIVES * NODE_MESSAGE_MAX, bytes, len);
        int err = ibv_post_send(control.id->qp, &wr, &bad);
        if (err)
                fail("cannot send: %s", strerror(err));
}

/* Waits for a message: its type. */
static int receive(void *to, size_t size, int timeout_ms)
{
        struct ibv_wc wc;
        double end = now() + timeout_ms / 1e3;

        while (now() < end) {
                if (!completion(&control, 100, &wc))
                        continue;
                if (wc.status != IBV_WC_SUCCESS)
                        fail("the control connection broke: %s", ibv_wc_status_str(wc.status));
                if (wc.wr_id >= RECEIVES)
                        continue;
                const struct node_header *h = (void *)(memory + wc.wr_id * NODE_MESSAGE_MAX);
                if (h->magic != NODE_MAGIC || h->length != wc.byte_len)
                        fail("a message of memnode that is none");
                memset(to, 0, size);
                memcpy(to, h, h->length < size ? h->length : size);
                int type = h->type;
                post_receive((unsigned)wc.wr_id);
                return type;
        }
        return -1;
}

static void header(void *m, enum node_type type, size_t size)
{
        memset(m, 0, size);
        *(struct node_header *)m = (struct node_header){ NODE_MAGIC, NODE_VERSION, (uint16_t)type,
                                                         (uint32_t)size, 0 };
}

/* Sends and waits for the reply of this type, or for the refusal that was asked for: then false. */
static bool ask(const void *m, size_t size, enum node_type reply, void *to, size_t to_size)
{
        union { struct node_refused refused; char room[NODE_MESSAGE_MAX]; } r;
        unsigned expected = want_refused;

        want_refused = 0;
        send_bytes(m, size);
        int type = receive(&r, sizeof(r), WAIT_MS);
        if (type == NODE_REFUSED) {
                if (r.refused.error != expected)
                        fail("refused with %u, expected %u: %s", r.refused.error, expected,
                             r.refused.text);
                printf("refused %u: %s\n", r.refused.error, r.refused.text);
                return false;
        }
        if (expected || type != (int)reply)
                fail("a reply of type %d, expected %s %u", type, expected ? "refusal" : "type",
                     expected ? expected : reply);
        memcpy(to, &r, to_size);
        return true;
}

static void hello(void)
{
        struct node_hello m;
        header(&m, NODE_HELLO, sizeof(m));
        memset(m.nonce, getpid(), sizeof(m.nonce));
        snprintf(m.name, sizeof(m.name), "test %d", (int)getpid());
        if (!ask(&m, sizeof(m), NODE_WELCOME, &me, sizeof(me)))
                return;
        proof_secret(secret, key.secret, key.bytes, me.id, m.nonce, me.nonce);
        printf("welcome limit %llu free %llu grace %u depth %u\n", (unsigned long long)me.limit,
               (unsigned long long)me.free, me.grace_ms, me.depth);
}

static void lease(uint64_t bytes)
{
        struct node_lease m;
        header(&m, NODE_LEASE, sizeof(m));
        m.bytes = bytes;
        if (nslabs == SLABS)
                fail("too many slabs for this program");
        if (ask(&m, sizeof(m), NODE_GRANT, &slab[nslabs], sizeof(slab[0]))) {
                const struct node_grant *g = &slab[nslabs++];
                printf("slab %u address %#llx key %#x\n", nslabs - 1,
                       (unsigned long long)g->address, g->rkey);
        }
}

static void release(unsigned i)
{
        struct node_release m;
        struct node_plain done;
        header(&m, NODE_RELEASE, sizeof(m));
        m.slab = i < nslabs ? slab[i].slab : i;
        ask(&m, sizeof(m), NODE_DONE, &done, sizeof(done));
}

static void find(unsigned i)
{
        struct node_find m;
        struct node_grant g;

        header(&m, NODE_FIND, sizeof(m));
        m.slab = i < nslabs ? slab[i].slab : i;
        if (!ask(&m, sizeof(m), NODE_GRANT, &g, sizeof(g)))
                return;
        if (i >= nslabs || g.slab != slab[i].slab || g.bytes != slab[i].bytes)
                fail("slab %llu of %llu bytes was found", (unsigned long long)g.slab,
                     (unsigned long long)g.bytes);
        slab[i] = g;
}

static void cut(uint64_t first, uint64_t last)
{
        struct node_cut m;
        struct node_plain done;

        header(&m, NODE_CUT, sizeof(m));
        m.count = 1;
        m.range[0].first = first;
        m.range[0].last = last;
        ask(&m, sizeof(m), NODE_DONE, &done, sizeof(done));
}

static void moved(unsigned has)
{
        struct node_moved m;
        struct node_plain done;

        header(&m, NODE_MOVED, sizeof(m));
        m.moved = has;
        ask(&m, sizeof(m), NODE_DONE, &done, sizeof(done));
}

static void flood(unsigned n)
{
        struct node_lease m;
        struct ibv_wc wc;
        unsigned sent = 0, done = 0;

        header(&m, NODE_LEASE, sizeof(m));
        m.bytes = 1 << 30;
        while (done < n) {
                for (; sent < n && sent - done < 32; sent++)
                        send_bytes(&m, sizeof(m));
                if (!completion(&control, 2000, &wc))
                        return;         /* memnode takes them no more */
                if (wc.status != IBV_WC_SUCCESS)
                        return;         /* as it should be */
                /* an answer's buffer is not posted again: the next ones cannot arrive */
                done += wc.wr_id >= RECEIVES;
        }
}

static void junk(unsigned n, unsigned seed)
{
        unsigned char bytes[NODE_MESSAGE_MAX];
        struct ibv_wc wc;

        srand(seed);
        for (unsigned i = 0; i < n; i++) {
                size_t len = (size_t)rand() % sizeof(bytes) + 1;
                for (size_t k = 0; k < len; k++)
                        bytes[k] = (unsigned char)rand();
                if (rand() % 2)
                        header(bytes, (enum node_type)(rand() % 10), sizeof(struct node_header));
                send_bytes(bytes, len);
                do
                        if (!completion(&control, WAIT_MS, &wc))
                                fail("junk is neither taken nor refused");
                while (wc.status == IBV_WC_SUCCESS && wc.wr_id < RECEIVES);
                if (wc.status != IBV_WC_SUCCESS)
                        return;
        }
}

static void ended(int timeout_ms)
{
        struct node_private p;
        double end = now() + timeout_ms / 1e3;

        while (!control.ended && now() < end)
                event(200, NULL, &p);
        if (!control.ended)
                fail("memnode does not end the connection");
}

/* --- data --- */

/* One transfer of at most CHUNK bytes: how it ended. */
static enum ibv_wc_status transfer(enum ibv_wr_opcode op, uint64_t address, uint32_t key,
                                   size_t len)
{
        struct ibv_sge sge = { (uintptr_t)memory + DATA_AT, (uint32_t)len, mr->lkey };
        struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op }, *bad;
        struct ibv_wc wc;

        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = key;
        int err = ibv_post_send(data.id->qp, &wr, &bad);
        if (err)
                fail("cannot post: %s", strerror(err));
        double end = now() + WAIT_MS / 1e3;
        while (ibv_poll_cq(data.cq, 1, &wc) == 0)
                if (now() > end)
                        fail("a transfer does not end");
        return wc.status;
}

/* A data connection that was ended: a WRITE that is posted on it does not arrive. */
static void is_off(void)
{
        struct link now_ = data;
        data = kept;
        memset(memory + DATA_AT, 0xee, 4096);
        enum ibv_wc_status s = transfer(IBV_WR_RDMA_WRITE, slab[0].address, slab[0].rkey, 4096);
        data = now_;
        if (s == IBV_WC_SUCCESS)
                fail("a WRITE on a connection that was ended arrived");
        printf("off: %s\n", ibv_wc_status_str(s));
}

static uint64_t pattern(uint64_t seed, uint64_t at)
{
        return seed ? (at + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull : 0;
}

static void pass(unsigned i, uint64_t seed, bool fill)
{
        uint64_t *words = (uint64_t *)(memory + DATA_AT);

        if (i >= nslabs)
                fail("no slab %u", i);
        for (uint64_t at = 0; at < slab[i].bytes; at += CHUNK) {
                size_t len = slab[i].bytes - at < CHUNK ? slab[i].bytes - at : CHUNK;
                for (size_t k = 0; k < len / 8; k++)
                        words[k] = fill ? pattern(seed, at + k * 8) : 0x5555;
                enum ibv_wc_status s = transfer(fill ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                                                slab[i].address + at, slab[i].rkey, len);
                if (s != IBV_WC_SUCCESS)
                        fail("%s at %#llx of slab %u: %s", fill ? "WRITE" : "READ",
                             (unsigned long long)at, i, ibv_wc_status_str(s));
                for (size_t k = 0; k < len / 8; k++)
                        if (words[k] != pattern(seed, at + k * 8))
                                fail("slab %u holds %#llx at %#llx, expected %#llx", i,
                                     (unsigned long long)words[k], (unsigned long long)(at + k * 8),
                                     (unsigned long long)pattern(seed, at + k * 8));
        }
}

static void must_not_reach(uint64_t address, uint32_t key)
{
        static const struct {
                enum ibv_wr_opcode op;
                const char *name;
        } ops[] = { { IBV_WR_RDMA_READ, "READ" }, { IBV_WR_RDMA_WRITE, "WRITE" } };

        for (unsigned i = 0; i < 2; i++) {
                enum ibv_wc_status s = transfer(ops[i].op, address, key, 4096);
                if (s != IBV_WC_REM_ACCESS_ERR)
                        fail("a forged %s: %s, expected %s", ops[i].name, ibv_wc_status_str(s),
                             ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
                connect_as(&data, NODE_DATA, false, 0);   /* an error ends the connection */
        }
}

static void traffic(double seconds)
{
        double start = now();
        unsigned long n = 0;
        uint64_t pages = slab[0].bytes / 4096;

        for (; now() - start < seconds; n++) {
                enum ibv_wc_status s =
                        transfer(n % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                                 slab[0].address + n / 2 % pages * 4096, slab[0].rkey, 4096);
                if (s != IBV_WC_SUCCESS)
                        fail("traffic: %s", ibv_wc_status_str(s));
        }
        printf("traffic %lu transfers in %.1f s\n", n, now() - start);
}

/* --- the verbs --- */

static void raw(const char *hex)
{
        unsigned char bytes[NODE_MESSAGE_MAX];
        size_t len = 0;
        unsigned byte;

        for (; len < sizeof(bytes) && sscanf(hex + 2 * len, "%2x", &byte) == 1; len++)
                bytes[len] = (unsigned char)byte;
        send_bytes(bytes, len);
}

static void goodbye(void)
{
        struct node_plain m;
        header(&m, NODE_GOODBYE, sizeof(m));
        send_bytes(&m, sizeof(m));
        ended(WAIT_MS);
}

static char **next;                     /* arguments not used yet */

static const char *word(void)
{
        if (!*next)
                fail("an argument is missing");
        return *next++;
}

static uint64_t number(void) { return strtoull(word(), NULL, 0); }

static void run(const char *verb)
{
        struct node_refused r;
        char line[80];
        uint64_t a;

        if (!strcmp(verb, "connect"))
                connect_as(&control, NODE_NEW, false, 0);
        else if (!strcmp(verb, "connect-denied"))
                connect_as(&control, NODE_NEW, false, (unsigned)number());
        else if (!strcmp(verb, "key")) {
                const char *text = word();
                key = (struct key){ .bytes = 0 };
                if (strcmp(text, "-") != 0 && keys_line(text, strlen(text), &key))
                        fail("%s is no key", text);
        } else if (!strcmp(verb, "again"))
                again((unsigned)number());
        else if (!strcmp(verb, "old"))
                old();
        else if (!strcmp(verb, "hello"))
                hello();
        else if (!strcmp(verb, "data"))
                connect_as(&data, NODE_DATA, false, 0);
        else if (!strcmp(verb, "data-refused"))
                connect_as(&data, NODE_DATA, false, (unsigned)number());
        else if (!strcmp(verb, "data-denied"))
                connect_as(&data, NODE_DATA, true, (unsigned)number());
        else if (!strcmp(verb, "rejoin"))
                connect_as(&control, NODE_CONTROL, false, 0);
        else if (!strcmp(verb, "rejoin-denied"))
                connect_as(&control, NODE_CONTROL, false, (unsigned)number());
        else if (!strcmp(verb, "member"))
                member = number();
        else if (!strcmp(verb, "generation"))   /* the next control connection has the one after */
                generation = (uint32_t)number();
        else if (!strcmp(verb, "cut"))
                a = number(), cut(a, number());
        else if (!strcmp(verb, "keep")) {
                kept_control = control, kept = data;
                memset(&control, 0, sizeof(control)), memset(&data, 0, sizeof(data));
        } else if (!strcmp(verb, "off"))
                is_off();
        else if (!strcmp(verb, "refused"))
                want_refused = (unsigned)number();
        else if (!strcmp(verb, "lease"))
                lease(number());
        else if (!strcmp(verb, "release"))
                release((unsigned)number());
        else if (!strcmp(verb, "find"))
                find((unsigned)number());
        else if (!strcmp(verb, "restarts")) {
                if (restarts != (a = number()))
                        fail("%u restarts, expected %llu", restarts, (unsigned long long)a);
        }
        else if (!strcmp(verb, "fill"))
                a = number(), pass((unsigned)a, number(), true);
        else if (!strcmp(verb, "verify"))
                a = number(), pass((unsigned)a, number(), false);
        else if (!strcmp(verb, "forged"))
                a = number(), (void)(a < nslabs || (fail("no slab"), 0)),
                must_not_reach(slab[a].address + strtoull(next[0], NULL, 0),
                               slab[a].rkey ^ (uint32_t)strtoull(next[1], NULL, 0)),
                next += 2;
        else if (!strcmp(verb, "reach"))
                a = number(), must_not_reach(a, (uint32_t)number());
        else if (!strcmp(verb, "own-key"))
                a = number(), must_not_reach(number(), slab[a % SLABS].rkey);
        else if (!strcmp(verb, "raw"))
                raw(word());
        else if (!strcmp(verb, "junk"))
                a = number(), junk((unsigned)a, (unsigned)number());
        else if (!strcmp(verb, "flood"))
                flood((unsigned)number());
        else if (!strcmp(verb, "ended"))
                ended(WAIT_MS);
        else if (!strcmp(verb, "goodbye"))
                goodbye();
        else if (!strcmp(verb, "byebye")) {
                if (receive(&r, sizeof(r), (int)number() * 1000) != NODE_GOODBYE)
                        fail("no GOODBYE came");
        } else if (!strcmp(verb, "asked")) {
                if (receive(&r, sizeof(r), (int)number() * 1000) != NODE_DRAIN)
                        fail("no DRAIN came");
        } else if (!strcmp(verb, "moved"))
                moved((unsigned)number());
        else if (!strcmp(verb, "drop"))
                end_link(&data), end_link(&control);
        else if (!strcmp(verb, "traffic"))
                traffic((double)number());
        else if (!strcmp(verb, "storm")) {
                const char *kind = word();
                storm(kind, (double)number());
        } else if (!strcmp(verb, "secret")) {
                for (unsigned i = 0; i < NODE_SECRET; i++)
                        printf("%02x%s", secret[i], i == NODE_SECRET - 1 ? "\n" : "");
        } else if (!strcmp(verb, "say"))
                puts(word());
        else if (!strcmp(verb, "wait")) {
                if (!fgets(line, sizeof(line), stdin))
                        fail("the test does not say to go on");
        } else
                fail("%s: no such verb", verb);
}

int main(int argc, char **argv)
{
        struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
        char host[256], port[8] = "7471";

        if (argc < 3 || sscanf(argv[1], "%255[^:]:%7s", host, port) < 1 ||
            getaddrinfo(host, port, &hints, &found))
                fail("usage: client ADDRESS[:PORT] VERB...");
        memcpy(&server, found->ai_addr, found->ai_addrlen);
        freeaddrinfo(found);
        channel = rdma_create_event_channel();
        if (!channel)
                fail("no RDMA here: %s", strerror(errno));
        setlinebuf(stdout);
        next = argv + 2;
        while (*next)
                run(*next++);
        return 0;
}
