/*
 * NBD's connections: a thread for each, from the handshake to the end, and the end of them all.
 * fence.c has their list.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/clock.h"
#include "memnode.h"
#include "nbd/export.h"
#include "nbd/fence.h"
#include "nbd/handshake.h"
#include "nbd/kept.h"
#include "nbd/proto.h"
#include "nbd/serve.h"
#include "nbd/thread.h"
#include "nbd/transmit.h"
#include "nodeproto.h"

/* a client that has not asked for an export by then is disconnected */
#define HANDSHAKE_MS    10000
/* wanted: the kernel gives what net.core.wmem_max allows */
#define UNIX_BUFFER     (4 << 20)

struct connection {
        struct nbd_fenced at;                   /* in the list */
        char peer[80];                          /* for the log */
        char description[NBD_DESCRIPTION];
};

/* relaxed everywhere: they publish no other data */
static _Atomic bool stopping, draining;
/* the log has a line about it, and there was no room since */
static _Atomic bool said_full;

/* ---- One connection ---- */

struct guest {                                  /* the handshake's view of it */
        struct connection *c;
        int64_t until;                          /* ms: when the handshake must be over */
};

/* Waits for events on the socket: 0, or -ETIMEDOUT when the handshake has taken too long. */
static int await(const struct guest *g, short events)
{
        struct pollfd p = { g->c->at.fd, events, 0 };

        for (;;) {
                int64_t ms = g->until - now_ms();
                int n = ms > 0 ? poll(&p, 1, (int)ms) : 0;
                if (n > 0)
                        return 0;
                if (n == 0)
                        return -ETIMEDOUT;
                if (errno != EINTR)
                        return -errno;
        }
}

static int guest_send(void *ctx, const void *data, size_t len)
{
        const struct guest *g = ctx;

        while (len) {
                ssize_t n = send(g->c->at.fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n > 0) {
                        data = (const char *)data + n;
                        len -= (size_t)n;
                        continue;
                }
                int err = errno == EAGAIN ? await(g, POLLOUT) : errno == EINTR ? 0 : -errno;
                if (err)
                        return err;
        }
        return 0;
}

static uint32_t guest_attach(void *ctx, const char *name, size_t len, uint64_t *size,
                             const char **text)
{
        struct guest *g = ctx;

        if (atomic_load_explicit(&stopping, memory_order_relaxed)) {
                *text = "memnode is about to end";
                return NBD_REP_ERR_SHUTDOWN;
        }
        uint32_t error = nbd_fence_attach(&g->c->at, name, len, text);
        if (error) {
                info_("NBD client %s: refused: %s", g->c->peer, *text);
                return error;
        }
        nbd_export_describe(g->c->at.e, g->c->description);
        *text = g->c->description;
        *size = g->c->at.e->size;
        if (nbd_export_has_status(g->c->at.e))
                *size += NBD_BLOCK_WANT;        /* the status, in a block of its own */
        return 0;
}

static uint32_t guest_look(void *ctx, const char *name, size_t len, uint64_t *size,
                           const char **text)
{
        struct guest *g = ctx;
        struct nbd_export *e;
        uint32_t error = nbd_export_look(name, len, size, &e, text);

        if (error || !e)
                return error;
        info_("NBD client %s: cuts members of its lease", g->c->peer);
        return nbd_fence_cut(e, text);
}

static void guest_detach(void *ctx)
{
        const struct guest *g = ctx;
        nbd_fence_leave(&g->c->at, false);
}

static const char *guest_listed(void *ctx, unsigned i)
{
        (void)ctx;
        return nbd_export_listed(i);
}

static const struct nbd_handshake_ops guest_ops = { guest_attach, guest_look, guest_detach,
                                                    guest_listed, guest_send };

/* Runs the handshake.  What the client sent behind it is in buf[*from, *to). */
static void handshake(struct connection *c, struct nbd_handshake *h, uint8_t *buf, size_t room,
                      size_t *from, size_t *to)
{
        struct guest g = { .c = c, .until = now_ms() + HANDSHAKE_MS };

        *from = *to = 0;
        nbd_handshake_start(h, &guest_ops, &g);
        while (h->end == NBD_HS_GOING) {
                int err = await(&g, POLLIN);
                ssize_t n = err ? 0 : recv(c->at.fd, buf, room, MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        continue;
                if (n <= 0) {
                        if (err == -ETIMEDOUT)
                                info_("NBD client %s: asked for no export within %d s: closed",
                                      c->peer, HANDSHAKE_MS / 1000);
                        else if (h->options == 0)
                                info_("NBD client %s: went before it asked for an export", c->peer);
                        h->end = NBD_HS_GOODBYE;
                        return;
                }
                *to = (size_t)n;
                *from = nbd_handshake_input(h, buf, *to);
        }
        if (h->end == NBD_HS_BROKEN)
                info_("NBD client %s: closed: %s", c->peer, h->broken);
}

/* Does memnode end, and keep this connection's lease?  Then its member will be back. */
static bool breaks_for_a_while(const struct connection *c)
{
        return opt.resume && c->at.e && nbd_export_has_status(c->at.e) &&
               atomic_load_explicit(&stopping, memory_order_relaxed);
}

static void serve(struct connection *c)
{
        struct nbd_handshake *h = malloc(sizeof(*h));
        uint8_t *buf = malloc(NBD_RECEIVE);
        size_t from, to;
        int err = 0;

        if (!h || !buf) {
                warnx_("NBD client %s: closed: no memory for its buffers", c->peer);
                goto out;
        }
        handshake(c, h, buf, NBD_RECEIVE, &from, &to);
        if (h->end != NBD_HS_ATTACHED) {
                /* It may have been admitted; then it counts as back. */
                if (breaks_for_a_while(c))
                        nbd_export_await(c->at.e, &c->at.who);
                goto out;
        }
        info_("NBD client %s: uses an export of %llu bytes", c->peer,
              (unsigned long long)c->at.e->size);
        struct nbd_link l = { .fd = c->at.fd, .e = c->at.e, .structured = h->structured,
                              .kept = opt.resume && nbd_export_has_status(c->at.e),
                              .stopping = &stopping, .cut = &c->at.cut,
                              .draining = &draining, .stays = &c->at.stays };
        free(h);
        h = NULL;
        err = nbd_transmit(&l, buf + from, to - from);
        info_("NBD client %s: %s", c->peer,
              err == 0                   ? "said goodbye"
              : err == -EPROTO           ? "closed: what it sent is no NBD request"
              : nbd_fence_is_cut(&c->at) ? "is cut off"
              : err == -EPIPE            ? "went without goodbye"
                                         : strerror(-err));
        if (err == 0)
                nbd_fence_leave(&c->at, true);
        else if (breaks_for_a_while(c))
                nbd_export_await(c->at.e, &c->at.who);
out:
        free(h);
        free(buf);
}

static void *connection_main(void *arg)
{
        struct connection *c = arg;

        serve(c);
        nbd_fence_exit(&c->at);
        atomic_store_explicit(&said_full, false, memory_order_relaxed);
        free(c);
        return NULL;
}

/* ---- New connections ---- */

static void name_peer(struct connection *c, const struct sockaddr_storage *a, socklen_t len)
{
        char host[64], port[16];
        struct ucred who;
        socklen_t n = sizeof(who);

        if (a->ss_family == AF_UNIX && getsockopt(c->at.fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0)
                snprintf(c->peer, sizeof(c->peer), "process %d of user %u", who.pid, who.uid);
        else if (getnameinfo((const struct sockaddr *)a, len, host, sizeof(host), port,
                             sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
                snprintf(c->peer, sizeof(c->peer), a->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
                         host, port);
        else
                snprintf(c->peer, sizeof(c->peer), "(unknown)");
}

static void set(int fd, int level, int option, int value)
{
        setsockopt(fd, level, option, &value, sizeof(value));
}

/* Failures cost speed only. */
static void tune(int fd, int family)
{
        if (family == AF_UNIX) {
                set(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
                return;
        }
        /* TCP's buffers are left to the kernel: its own limit is larger than what it lets us
         * set. */
        set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        /* A peer that lost power is noticed within some 30 s, even if nothing is under way. */
        set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
        set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
        set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

/* It is in the list before its thread begins, and before `stopping` is read: so the end of memnode
 * waits for it, or it is refused. */
static int begin(struct connection *c)
{
        pthread_t id;

        if (!nbd_fence_enter(&c->at)) {
                close(c->at.fd);
                return -EUSERS;
        }
        int err = atomic_load_explicit(&stopping, memory_order_relaxed)
                          ? -ESHUTDOWN
                          : nbd_thread(&id, connection_main, c, true);
        if (err)
                nbd_fence_exit(&c->at);
        return err;
}

void nbd_welcome(int fd, const struct sockaddr_storage *a, socklen_t len)
{
        struct connection *c = calloc(1, sizeof(*c));

        if (!c) {
                close(fd);
                return;
        }
        c->at.fd = fd;
        name_peer(c, a, len);
        tune(fd, a->ss_family);
        int err = begin(c);
        if (!err)
                return;
        if (err == -EUSERS && !atomic_exchange_explicit(&said_full, true, memory_order_relaxed))
                warnx_("NBD client %s: refused: there are %d connections, which is the limit; "
                       "others are refused silently until one ends",
                       c->peer, NBD_CONNECTIONS_MAX);
        else if (err != -EUSERS && err != -ESHUTDOWN)
                warnx_("NBD client %s: refused: cannot make a thread for it: %s", c->peer,
                       strerror(-err));
        free(c);
}

/* ---- Draining ---- */

void nbd_drain(void)
{
        nbd_export_drain();
        atomic_store_explicit(&draining, true, memory_order_relaxed);
}

static void say_waits(const struct nbd_fenced *at)
{
        const struct connection *c = (const struct connection *)at;

        warnx_("draining: NBD client %s has not moved away yet", c->peer);
}

/* Clients that just lost their connection are counted first: a client that comes back meanwhile is
 * in the other count. */
unsigned nbd_waits(bool say)
{
        unsigned gone = nbd_export_just_gone();

        return gone + nbd_fence_members(say ? say_waits : NULL);
}

/* ---- The end ---- */

void nbd_refuse(void) { atomic_store_explicit(&stopping, true, memory_order_relaxed); }

/*
 * In three steps.  For a moment new requests are answered with NBD_ESHUTDOWN, so that a busy client
 * learns why; connections to leases that are kept break at once instead.  Then nothing more is
 * read, and every connection ends once its requests are answered.  At last, connections whose
 * clients do not take their answers are cut.
 */
bool nbd_end_connections(unsigned timeout_ms)
{
        unsigned moment = timeout_ms / 4 < 250 ? timeout_ms / 4 : 250;

        if (opt.resume)
                nbd_fence_break();
        unsigned left = nbd_fence_wait(moment);
        if (!left)
                return true;
        nbd_fence_shut(SHUT_RD);
        left = nbd_fence_wait(timeout_ms - moment);
        if (!left)
                return true;
        warnx_("%u NBD connections do not take their answers: closed", left);
        nbd_fence_shut(SHUT_RDWR);
        left = nbd_fence_wait(1000);
        if (left)
                warnx_("%u NBD connections are still at work", left);
        return !left;
}
