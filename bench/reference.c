/*
 * The reference for reads of far memory over RDMA: one-sided READs of 4 KiB over an RC connection
 * with as little around them as can be.
 *
 *   asker    (main thread) measures. With --threads 2 it hands each read to the poller through one
 *            word and spins on another one until the read is over, as a vCPU and vmrun's I/O thread
 *            do. With --threads 1 it posts and polls itself, as ib_read_lat does.
 *   poller   posts READs and polls the completion queue. It spins while it waits: nothing sleeps,
 *            so nothing has to be woken.
 *   peer     the passive side: listens, accepts, and then sleeps in the kernel until the connection
 *            ends. Its CPU moves no data, except for what soft-RoCE does in its name.
 *
 * Both ends are in this process, with a protection domain and a memory region each; the address is
 * one of this machine's RDMA devices. Pages are chosen at random, at both ends. Prints `KEY VALUE`
 * lines, times in ns.
 *
 *   latency_p50, latency_p99, latency_min     one read at a time (--depth 1), by TSC
 *   mb_per_s                                  with --depth N in flight; the poller alone, as
 *                                             nothing is handed over
 *
 * --bytes N reads N bytes from the beginning of a page on instead of a page, with --depth 1.
 */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

#define PAGE        4096u
#define DEPTH_MAX   512u
#define WC          16                  /* completions looked at in one go, as the driver does */
#define STEP_MS     4000
#define BYTES_MAX   (1u << 20)

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void die(const char *fmt, ...)
{
        va_list ap;

        fputs("reference: ", stderr);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(1);
}

/* ---- settings ---- */

static const char *address;
static uint16_t port = 7480;
static unsigned depth = 1, threads = 2;
static uint64_t pages = 16384, reads = 20000;
static uint32_t bytes = PAGE;           /* of a read */

/* ---- both ends ---- */

struct memory { char *base; struct ibv_pd *pd; struct ibv_mr *mr; };

static struct memory memory_make(struct rdma_cm_id *id, int access)
{
        struct memory m;

        /* A read of more than a page may begin at the last one. */
        size_t size = pages * PAGE + BYTES_MAX;
        m.base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (m.base == MAP_FAILED)
                die("no memory for %lu pages: %s", (unsigned long)pages, strerror(errno));
        m.pd = ibv_alloc_pd(id->verbs);
        m.mr = m.pd ? ibv_reg_mr(m.pd, m.base, size, access) : NULL;
        if (!m.mr)
                die("%lu pages cannot be registered: %s; is `ulimit -l` high enough?",
                    (unsigned long)pages, strerror(errno));
        return m;
}

static void qp_make(struct rdma_cm_id *id, struct ibv_pd *pd, unsigned sends)
{
        struct ibv_qp_init_attr attr = {
                .qp_type = IBV_QPT_RC,
                .sq_sig_all = 1,
                .cap = { .max_send_wr = sends,
                         .max_recv_wr = 1,
                         .max_send_sge = 1,
                         .max_recv_sge = 1 },
        };
        attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, (int)sends + 1, NULL, NULL, 0);
        if (!attr.send_cq || rdma_create_qp(id, pd, &attr) != 0)
                die("no queue pair: %s", strerror(errno));
}

/* The next event of the channel, which must be `want`; to be acknowledged by the caller. */
static struct rdma_cm_event *event(struct rdma_event_channel *ch, enum rdma_cm_event_type want)
{
        struct rdma_cm_event *ev;

        if (rdma_get_cm_event(ch, &ev) != 0)
                die("rdma_get_cm_event: %s", strerror(errno));
        if (ev->event != want)
                die("%s instead of %s", rdma_event_str(ev->event), rdma_event_str(want));
        return ev;
}

static struct rdma_conn_param connection(struct rdma_cm_id *id)
{
        struct ibv_device_attr a;

        if (ibv_query_device(id->verbs, &a) != 0)
                die("ibv_query_device: %s", strerror(errno));
        return (struct rdma_conn_param){
                .initiator_depth =
                        (uint8_t)(a.max_qp_init_rd_atom > 128 ? 128 : a.max_qp_init_rd_atom),
                .responder_resources = (uint8_t)(a.max_qp_rd_atom > 128 ? 128 : a.max_qp_rd_atom),
                .retry_count = 6,
                .rnr_retry_count = 6,
        };
}

/* ---- the peer ---- */

static struct {
        uint64_t address;
        uint32_t rkey;
} remote; /* written by the peer before it accepts, read once connected */

static void *peer_main(void *arg)
{
        struct rdma_cm_id *listener = arg;
        struct rdma_cm_event *ev = event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *id = ev->id;

        rdma_ack_cm_event(ev);
        struct memory m = memory_make(id, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
        for (uint64_t i = 0; i < pages; i++)
                *(uint64_t *)(m.base + i * PAGE) = ~i;
        remote.address = (uintptr_t)m.base;
        remote.rkey = m.mr->rkey;
        qp_make(id, m.pd, 1);
        struct rdma_conn_param p = connection(id);
        if (rdma_accept(id, &p) != 0)
                die("rdma_accept: %s", strerror(errno));
        rdma_ack_cm_event(event(listener->channel, RDMA_CM_EVENT_ESTABLISHED));
        rdma_ack_cm_event(event(listener->channel, RDMA_CM_EVENT_DISCONNECTED));
        rdma_destroy_qp(id);
        return NULL;
}

static pthread_t peer_start(const struct sockaddr *at)
{
        struct rdma_event_channel *ch = rdma_create_event_channel();
        struct rdma_cm_id *listener;
        pthread_t t;

        if (!ch || rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP) != 0 ||
            rdma_bind_addr(listener, (struct sockaddr *)(uintptr_t)at) != 0 ||
            rdma_listen(listener, 1) != 0)
                die("%s port %u: %s; is there an RDMA device with this address?", address, port,
                    strerror(errno));
        if (pthread_create(&t, NULL, peer_main, listener) != 0)
                die("no thread for the peer");
        return t;
}

/* ---- the active side ---- */

static struct rdma_cm_id *id;
static struct memory local;

static void active_connect(const struct sockaddr *to)
{
        struct rdma_event_channel *ch = rdma_create_event_channel();

        if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) != 0 ||
            rdma_resolve_addr(id, NULL, (struct sockaddr *)(uintptr_t)to, STEP_MS) != 0)
                die("%s: %s", address, strerror(errno));
        rdma_ack_cm_event(event(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
        if (rdma_resolve_route(id, STEP_MS) != 0)
                die("%s: no route: %s", address, strerror(errno));
        rdma_ack_cm_event(event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
        local = memory_make(id, IBV_ACCESS_LOCAL_WRITE);
        qp_make(id, local.pd, depth);
        struct rdma_conn_param p = connection(id);
        if (rdma_connect(id, &p) != 0)
                die("rdma_connect: %s", strerror(errno));
        rdma_ack_cm_event(event(ch, RDMA_CM_EVENT_ESTABLISHED));
}

static uint64_t random_page(void)
{
        static uint64_t state = 0x9e3779b97f4a7c15;     /* one thread draws */

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (uint64_t)(((unsigned __int128)state * pages) >> 64);
}

struct read { struct ibv_send_wr wr; struct ibv_sge sge; uint64_t page; };

/*
 * Reads of different numbers that are in flight together go to different local pages: an odd
 * multiple, modulo a power of two.
 */
static void read_fill(struct read *r, uint64_t number)
{
        uint64_t to = number * 0x9e3779b1 & (pages - 1);

        r->page = random_page();
        r->sge = (struct ibv_sge){ .addr = (uintptr_t)local.base + to * PAGE,
                                   .length = bytes,
                                   .lkey = local.mr->lkey };
        r->wr = (struct ibv_send_wr){
                .wr_id = number,
                .sg_list = &r->sge,
                .num_sge = 1,
                .opcode = IBV_WR_RDMA_READ,
                .send_flags = IBV_SEND_SIGNALED,
                .wr.rdma = { .remote_addr = remote.address + r->page * PAGE, .rkey = remote.rkey },
        };
}

static void read_check(const struct read *r)
{
        if (*(uint64_t *)(uintptr_t)r->sge.addr != ~r->page)
                die("a read of page %lu brought something else", (unsigned long)r->page);
}

static void post(struct ibv_send_wr *wr)
{
        struct ibv_send_wr *bad;
        int err = ibv_post_send(id->qp, wr, &bad);
        if (err)
                die("ibv_post_send: %s", strerror(err));
}

/* Completions that are there, in the order of the posts: how many. */
static unsigned poll_some(struct ibv_wc wc[WC])
{
        int n = ibv_poll_cq(id->qp->send_cq, WC, wc);

        if (n < 0)
                die("ibv_poll_cq fails");
        for (int i = 0; i < n; i++)
                if (wc[i].status != IBV_WC_SUCCESS)
                        die("a read failed: %s", ibv_wc_status_str(wc[i].status));
        return (unsigned)n;
}

static void read_once(struct read *r)
{
        struct ibv_wc wc[WC];

        post(&r->wr);
        while (poll_some(wc) == 0)
                _mm_pause();
}

/*
 * asked and answered are numbers of reads; each has one writer.  Release and acquire carry the_read
 * to the poller, and its page back.
 */
static _Atomic uint64_t asked __attribute__((aligned(64))), answered __attribute__((aligned(64)));
static struct read the_read __attribute__((aligned(64)));

static void *poller_main(void *arg)
{
        (void)arg;
        for (uint64_t n = 1; n <= reads; n++) {
                while (atomic_load_explicit(&asked, memory_order_acquire) != n)
                        _mm_pause();
                read_once(&the_read);
                atomic_store_explicit(&answered, n, memory_order_release);
        }
        return NULL;
}

static int by_size(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return (x > y) - (x < y);
}

static uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void latency(void)
{
        uint64_t *ticks = calloc(reads, sizeof(*ticks));
        pthread_t poller;

        if (!ticks)
                die("no memory for %lu figures", (unsigned long)reads);
        if (threads == 2 && pthread_create(&poller, NULL, poller_main, NULL) != 0)
                die("no thread for the poller");
        uint64_t began = now_ns(), first = __rdtsc();
        for (uint64_t n = 1; n <= reads; n++) {
                read_fill(&the_read, n);
                uint64_t t = __rdtsc();
                if (threads == 2) {
                        atomic_store_explicit(&asked, n, memory_order_release);
                        while (atomic_load_explicit(&answered, memory_order_acquire) != n)
                                _mm_pause();
                } else {
                        read_once(&the_read);
                }
                ticks[n - 1] = __rdtsc() - t;
                read_check(&the_read);
        }
        double ns_per_tick = (double)(now_ns() - began) / (double)(__rdtsc() - first);
        if (threads == 2)
                pthread_join(poller, NULL);
        qsort(ticks, reads, sizeof(*ticks), by_size);
        printf("latency_min %.0f\nlatency_p50 %.0f\nlatency_p99 %.0f\n",
               (double)ticks[0] * ns_per_tick, (double)ticks[reads / 2] * ns_per_tick,
               (double)ticks[reads - reads / 100 - 1] * ns_per_tick);
        free(ticks);
}

/* Keeps `depth` reads in flight: posts one chain of as many reads as have ended. */
static void bandwidth(void)
{
        static struct read r[DEPTH_MAX];
        struct ibv_wc wc[WC];
        uint64_t posted = 0, over = 0, began = now_ns();

        while (over < reads) {
                struct ibv_send_wr chain, *last = &chain;
                for (chain.next = NULL; posted < reads && posted - over < depth; posted++) {
                        struct read *one =
                                &r[posted %
                                   depth]; /* a QP completes in order, so this one is over */
                        read_fill(one, posted);
                        last->next = &one->wr;
                        last = &one->wr;
                }
                if (chain.next)
                        post(chain.next);
                unsigned n = poll_some(wc);
                for (unsigned i = 0; i < n; i++)
                        read_check(&r[wc[i].wr_id % depth]);
                over += n;
                if (n == 0)
                        _mm_pause();
        }
        uint64_t took = now_ns() - began;
        printf("mb_per_s %.2f\nreads_per_s %.0f\n", (double)reads * PAGE * 1e3 / (double)took,
               (double)reads * 1e9 / (double)took);
}

static uint64_t number(const char *what, const char *s, uint64_t low, uint64_t high)
{
        char *end;
        errno = 0;
        uint64_t v = strtoull(s, &end, 10);
        if (errno || end == s || *end || *s == '-' || v < low || v > high)
                die("%s %s: must be a number from %lu to %lu", what, s, (unsigned long)low,
                    (unsigned long)high);
        return v;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "bytes", required_argument, NULL, 'b' },
                { "depth", required_argument, NULL, 'd' },
                { "pages", required_argument, NULL, 'p' },
                { "port", required_argument, NULL, 'o' },
                { "reads", required_argument, NULL, 'r' },
                { "threads", required_argument, NULL, 't' },
                { NULL, 0, NULL, 0 },
        };
        struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                  .ai_socktype = SOCK_STREAM },
                        *a;
        char service[8];
        bool usage = false;

        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'b': bytes = (uint32_t)number("--bytes", optarg, 8, BYTES_MAX); break;
                case 'd': depth = (unsigned)number("--depth", optarg, 1, DEPTH_MAX); break;
                case 'p': pages = number("--pages", optarg, DEPTH_MAX, 1 << 24); break;
                case 'o': port = (uint16_t)number("--port", optarg, 1, 65535); break;
                case 'r': reads = number("--reads", optarg, 100, 1000000000); break;
                case 't': threads = (unsigned)number("--threads", optarg, 1, 2); break;
                default: usage = true;
                }
        if (pages & (pages - 1))
                die("--pages %lu: must be a power of two", (unsigned long)pages);
        if (bytes != PAGE && depth != 1)
                die("--bytes: only with --depth 1");
        if (usage || optind != argc - 1) {
                fprintf(stderr, "usage: reference [--depth N] [--threads 1|2] [--reads N] [--bytes "
                                "N] [--pages N] [--port N] ADDRESS\n");
                return 2;
        }
        address = argv[optind];
        snprintf(service, sizeof(service), "%u", port);
        if (getaddrinfo(address, service, &hints, &a) != 0)
                die("%s: not an IP address", address);

        pthread_t peer = peer_start(a->ai_addr);
        active_connect(a->ai_addr);
        freeaddrinfo(a);
        if (depth == 1)
                latency();
        else
                bandwidth();
        rdma_disconnect(id);
        pthread_join(peer, NULL);
        return 0;
}
