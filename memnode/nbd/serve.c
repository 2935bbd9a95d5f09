/*
 * NBD's connections: a thread for each, from the handshake to the end, and the end of them all.
 *
 * A connection belongs to its thread, which closes and frees it.  Other threads find it in the
 * list, under the lock, only to shut its socket down.
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
#include "nbd/nbd.h"

/* connections to exports; so many more may be in their handshake, so that there is room to say
 * which members are dead */
#define CONNECTIONS_MAX 256
#define HANDSHAKES      32
/* a client that has not asked for an export by then is disconnected */
#define HANDSHAKE_MS    10000
/* A connection that is cut leaves at its next receive, or between two requests. */
#define CUT_MS          10000
/* wanted: the kernel gives what net.core.wmem_max allows */
#define UNIX_BUFFER     (4 << 20)

struct connection {
        int fd;
        char peer[80];                          /* for the log */
        struct nbd_export *e;
        struct nbd_who who;                     /* guarded by lock once e is set */
        char description[NBD_DESCRIPTION];
        /* Set under the lock.  Relaxed: whoever sets it waits until this connection's thread has
         * left, under the same lock. */
        _Atomic bool cut;
        struct connection *next;
};

/* relaxed everywhere: it publishes no other data */
static _Atomic bool stopping;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by lock: */
static struct connection *connections;
static unsigned nconnections, nattached;
/* the log has a line about it, and there was no room since */
static bool said_full;
static pthread_cond_t fewer = PTHREAD_COND_INITIALIZER; /* a connection has ended */

/* ---- One connection ---- */

struct guest {                                  /* the handshake's view of it */
        struct connection *c;
        int64_t until;                          /* ms: when the handshake must be over */
};

/* Waits for events on the socket: 0, or -ETIMEDOUT when the handshake has taken too long. */
static int await(const struct guest *g, short events)
{
        struct pollfd p = { g->c->fd, events, 0 };

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
                ssize_t n = send(g->c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
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

/* The connection uses its export no longer.  goodbye: it ends properly. */
static void leave(struct connection *c, bool goodbye)
{
        pthread_mutex_lock(&lock);
        struct nbd_export *e = c->e;
        nattached -= e != NULL;
        c->e = NULL;
        pthread_cond_broadcast(&fewer);
        pthread_mutex_unlock(&lock);
        if (e && goodbye)
                nbd_export_leave(e);
        else if (e)
                nbd_export_detach(e);
}

static bool is_cut(const struct connection *c)
{
        return atomic_load_explicit(&c->cut, memory_order_relaxed);
}

/*
 * Ends the connections to an export that are stale, and waits until their threads have left.  self:
 * the caller's own, NULL if it has none.  False: the caller's own is stale, or another has not left
 * in time.
 *
 * [I] A connection is in the list with its `who` before it looks whether it is stale.  A newer one
 * is admitted before it looks for stale ones.  So one of the two sees the other.  Older connections
 * wait for none that is newer, so these waits end.
 */
static bool end_stale(struct nbd_export *e, const struct connection *self)
{
        const struct timespec until = deadline_in_ms(CUT_MS);
        bool waits = true, late = false;

        pthread_mutex_lock(&lock);
        while (waits && !late && !(self && is_cut(self))) {
                waits = false;
                for (struct connection *c = connections; c; c = c->next) {
                        if (c->e != e || nbd_export_current(e, &c->who))
                                continue;
                        if (!is_cut(c)) {
                                shutdown(c->fd, SHUT_RDWR);
                                atomic_store_explicit(&c->cut, true, memory_order_relaxed);
                                pthread_cond_broadcast(&fewer); /* it may wait in here itself */
                        }
                        waits |= c != self;
                }
                late = waits && !(self && is_cut(self)) &&
                       pthread_cond_clockwait(&fewer, &lock, CLOCK_MONOTONIC, &until) != 0;
        }
        bool ok = !late && !(self && is_cut(self));
        pthread_mutex_unlock(&lock);
        return ok;
}

/* Once the connections that this one replaces have left. */
static bool too_many(void)
{
        pthread_mutex_lock(&lock);
        bool is = nattached > CONNECTIONS_MAX;
        pthread_mutex_unlock(&lock);
        return is;
}

static uint32_t guest_attach(void *ctx, const char *name, size_t len, uint64_t *size,
                             const char **text)
{
        struct guest *g = ctx;

        if (atomic_load_explicit(&stopping, memory_order_relaxed)) {
                *text = "memnode is about to end";
                return NBD_REP_ERR_SHUTDOWN;
        }
        struct nbd_export *e;
        struct nbd_who who;
        uint32_t error = nbd_export_attach(name, len, &e, &who, text);
        if (error) {
                info_("NBD client %s: refused: %s", g->c->peer, *text);
                return error;
        }
        pthread_mutex_lock(&lock);
        g->c->who = who;
        g->c->e = e;
        nattached++;
        pthread_mutex_unlock(&lock);
        bool current = end_stale(e, g->c);
        if (!current || too_many()) {
                leave(g->c, false);
                *text = current ? "memnode has as many connections as it can serve"
                                : "an older connection of this process has not ended, or a newer "
                                  "one is here";
                info_("NBD client %s: refused: %s", g->c->peer, *text);
                return NBD_REP_ERR_POLICY;
        }
        nbd_export_describe(e, g->c->description);
        *text = g->c->description;
        *size = e->size;
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
        bool ended = end_stale(e, NULL);
        nbd_export_detach(e);
        if (ended)
                return 0;
        *text = "a connection of a member that was cut has not ended yet";
        return NBD_REP_ERR_POLICY;
}

static void guest_detach(void *ctx)
{
        const struct guest *g = ctx;
        leave(g->c, false);
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
                ssize_t n = err ? 0 : recv(c->fd, buf, room, MSG_DONTWAIT);
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
        if (h->end != NBD_HS_ATTACHED)
                goto out;
        info_("NBD client %s: uses an export of %llu bytes", c->peer,
              (unsigned long long)c->e->size);
        struct nbd_link l = { c->fd, c->e, h->structured, &stopping, &c->cut };
        free(h);
        h = NULL;
        err = nbd_transmit(&l, buf + from, to - from);
        info_("NBD client %s: %s", c->peer,
              err == 0         ? "said goodbye"
              : err == -EPROTO ? "closed: what it sent is no NBD request"
              : is_cut(c)      ? "is cut off"
              : err == -EPIPE  ? "went without goodbye"
                               : strerror(-err));
        if (err == 0)
                leave(c, true);
out:
        free(h);
        free(buf);
}

static void *connection_main(void *arg)
{
        struct connection *c = arg;

        serve(c);
        leave(c, false);
        pthread_mutex_lock(&lock);
        struct connection **p = &connections;
        while (*p != c)
                p = &(*p)->next;
        *p = c->next;
        /* under the lock, so that no other socket that gets this number is shut down */
        close(c->fd);
        nconnections--;
        said_full = false;
        /* this thread's last access to what nbd_stop() waits for */
        pthread_cond_broadcast(&fewer);
        pthread_mutex_unlock(&lock);
        free(c);
        return NULL;
}

/* ---- New connections ---- */

static void name_peer(struct connection *c, const struct sockaddr_storage *a, socklen_t len)
{
        char host[64], port[16];
        struct ucred who;
        socklen_t n = sizeof(who);

        if (a->ss_family == AF_UNIX && getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0)
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

void nbd_welcome(int fd, const struct sockaddr_storage *a, socklen_t len)
{
        pthread_t id;
        struct connection *c = calloc(1, sizeof(*c));

        if (!c) {
                close(fd);
                return;
        }
        c->fd = fd;
        name_peer(c, a, len);
        tune(fd, a->ss_family);
        pthread_mutex_lock(&lock);
        int err = atomic_load_explicit(&stopping, memory_order_relaxed) ? -ESHUTDOWN
                  : nconnections == CONNECTIONS_MAX + HANDSHAKES        ? -EUSERS
                                                                        : 0;
        if (err == -EUSERS && !said_full) {
                warnx_("NBD client %s: refused: there are %d connections, which is the limit; "
                       "others are refused silently until one ends",
                       c->peer, CONNECTIONS_MAX + HANDSHAKES);
                said_full = true;
        }
        if (!err)
                err = nbd_thread(&id, connection_main, c, true);
        if (!err) {                             /* it cannot end before we release the lock */
                c->next = connections;
                connections = c;
                nconnections++;
        } else if (err != -EUSERS && err != -ESHUTDOWN) {
                warnx_("NBD client %s: refused: cannot make a thread for it: %s", c->peer,
                       strerror(-err));
        }
        pthread_mutex_unlock(&lock);
        if (err) {
                close(fd);
                free(c);
        }
}

/* ---- The end ---- */

/* Waits up to ms for all connections to end.  The lock is held. */
static bool all_ended(unsigned ms)
{
        const struct timespec until = deadline_in_ms(ms);

        while (nconnections && pthread_cond_clockwait(&fewer, &lock, CLOCK_MONOTONIC, &until) == 0)
                ;
        return nconnections == 0;
}

static void shut_all(int how)
{
        for (struct connection *c = connections; c; c = c->next)
                shutdown(c->fd, how);
}

void nbd_refuse(void) { atomic_store_explicit(&stopping, true, memory_order_relaxed); }

/*
 * In three steps.  For a moment new requests are answered with NBD_ESHUTDOWN, so that a busy client
 * learns why.  Then nothing more is read, and every connection ends once its requests are answered.
 * At last, connections whose clients do not take their answers are cut.
 */
bool nbd_end_connections(unsigned timeout_ms)
{
        unsigned moment = timeout_ms / 4 < 250 ? timeout_ms / 4 : 250;

        pthread_mutex_lock(&lock);
        if (!all_ended(moment)) {
                shut_all(SHUT_RD);
                if (!all_ended(timeout_ms - moment)) {
                        warnx_("%u NBD connections do not take their answers: closed",
                               nconnections);
                        shut_all(SHUT_RDWR);
                        if (!all_ended(1000))
                                warnx_("%u NBD connections are still at work", nconnections);
                }
        }
        bool ended = nconnections == 0;
        pthread_mutex_unlock(&lock);
        return ended;
}
