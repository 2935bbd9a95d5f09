/*
 * Connections that may use exports: a thread for each, from the choice of the export to the end,
 * and the end of them all.  fence.c has their list.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "admission/party.h"
#include "admission/refusals.h"
#include "common/clock.h"
#include "memnode.h"
#include "nbd/connection.h"
#include "nbd/kept.h"
#include "nbd/proto.h"
#include "nbd/serve.h"
#include "nbd/thread.h"
#include "nbd/tls.h"
#include "nbd/transmit.h"
#include "nodeproto.h"

/* a client that has not chosen its export by then is disconnected */
#define CHOICE_MS       10000

/* relaxed everywhere: they publish no other data */
static _Atomic bool stopping, draining;

/* ---- The choice of an export ---- */

static int guest_send(void *ctx, const void *data, size_t len)
{
        struct nbd_connection *c = ctx;

        return nbd_wire_send(&c->wire, &(struct iovec){ (void *)data, len }, 1, c->until);
}

#define MARK_TEXT 32

/* What the log may show of the lease that a name means; "" for others. */
static const char *mark_of(const char *name, size_t len, char text[MARK_TEXT])
{
        struct nbd_lease_name n;

        *text = 0;
        if (nbd_lease_parse(name, len, &n) == 0)
                snprintf(text, MARK_TEXT, "NBD lease %.*s...: ", NBD_LEASE_MARK, n.hex);
        return text;
}

static uint32_t guest_attach(void *ctx, const char *name, size_t len, uint64_t *size,
                             const char **text)
{
        struct nbd_connection *c = ctx;
        char mark[MARK_TEXT];

        if (atomic_load_explicit(&stopping, memory_order_relaxed)) {
                *text = "memnode is about to end";
                return NBD_REP_ERR_SHUTDOWN;
        }
        uint32_t error = nbd_fence_attach(&c->at, c->party, name, len, text);
        if (error) {
                nbd_refused(c, error == NBD_REP_ERR_POLICY ? REFUSED_LIMIT : REFUSED_REQUEST,
                            "%s%s", mark_of(name, len, mark), *text);
                return error;
        }
        nbd_export_describe(c->at.e, c->description);
        *text = c->description;
        *size = c->at.e->size;
        if (nbd_export_has_status(c->at.e))
                *size += NBD_BLOCK_WANT;        /* the status, in a block of its own */
        /* Making the lease may have taken longer than a choice may. */
        c->until = now_ms() + CHOICE_MS;
        return 0;
}

static uint32_t guest_look(void *ctx, const char *name, size_t len, uint64_t *size,
                           const char **text)
{
        struct nbd_connection *c = ctx;
        struct nbd_export *e;
        uint32_t error = nbd_export_look(name, len, size, &e, text);

        /* vmrun asks for an export that cannot exist, to see that the server knows which do. */
        if (error && error != NBD_REP_ERR_UNKNOWN)
                nbd_refused(c, REFUSED_REQUEST, "%s", *text);
        if (error || !e)
                return error;
        info_("%s: cuts members of its lease", c->peer);
        return nbd_fence_cut(e, text);
}

static void guest_detach(void *ctx)
{
        struct nbd_connection *c = ctx;
        nbd_fence_leave(&c->at, false);
}

static const char *guest_listed(void *ctx, unsigned i)
{
        (void)ctx;
        return nbd_export_listed(i);
}

static const struct nbd_handshake_ops guest_ops = { guest_attach, guest_look, guest_detach,
                                                    guest_listed, guest_send };

/* Goes on with the handshake.  What the client sent behind it is in c->ahead then. */
static void negotiate(struct nbd_connection *c)
{
        struct nbd_handshake *h = c->h;
        size_t taken;

        c->until = now_ms() + CHOICE_MS;
        h->ops = &guest_ops;
        if (h->end == NBD_HS_OPTION)
                nbd_handshake_go_on(h);
        taken = nbd_handshake_input(h, c->ahead, c->nahead);
        memmove(c->ahead, c->ahead + taken, c->nahead - taken);
        c->nahead -= taken;
        while (h->end == NBD_HS_GOING) {
                struct iovec iov = { c->ahead, sizeof(c->ahead) };
                ssize_t n = nbd_wire_receive(&c->wire, &iov, 1, false);
                int err = n == -EAGAIN ? nbd_wire_await(&c->wire, POLLIN, c->until) : 0;
                if (n == -EAGAIN && !err)
                        continue;
                if (err == -ETIMEDOUT)
                        nbd_refused(c, REFUSED_SLOW, "it chose no export within %d s",
                                    CHOICE_MS / 1000);
                if (n <= 0) {
                        h->end = NBD_HS_GOODBYE;
                        return;
                }
                taken = nbd_handshake_input(h, c->ahead, (size_t)n);
                c->nahead = (size_t)n - taken;
                memmove(c->ahead, c->ahead + taken, c->nahead);
        }
        if (h->end == NBD_HS_BROKEN || h->end == NBD_HS_TLS)
                nbd_refused(c, REFUSED_PROTOCOL, "%s",
                            h->end == NBD_HS_TLS ? "it begins TLS late" : h->broken);
}

/* False: the client has chosen no export.  *structured: how it wants its replies. */
static bool choose(struct nbd_connection *c, bool *structured)
{
        negotiate(c);
        bool attached = c->h->end == NBD_HS_ATTACHED;
        *structured = c->h->structured;
        free(c->h);
        c->h = NULL;
        return attached;
}

/* ---- One connection ---- */

/* Does memnode end, and keep this connection's lease?  Then its member will be back. */
static bool breaks_for_a_while(const struct nbd_connection *c)
{
        return opt.resume && c->at.e && nbd_export_has_status(c->at.e) &&
               atomic_load_explicit(&stopping, memory_order_relaxed);
}

static void serve(struct nbd_connection *c)
{
        char text[NBD_EXPORT_TEXT];
        bool structured;

        if (!choose(c, &structured)) {
                /* It may have been admitted; then it counts as back. */
                if (breaks_for_a_while(c))
                        nbd_export_await(c->at.e, &c->at.who);
                return;
        }
        info_("%s: uses an export of %llu bytes: %s", c->peer, (unsigned long long)c->at.e->size,
              nbd_export_text(c->at.e, text));
        struct nbd_link l = { .wire = &c->wire, .e = c->at.e, .structured = structured,
                              .kept = opt.resume && nbd_export_has_status(c->at.e),
                              .stopping = &stopping, .cut = &c->at.cut,
                              .draining = &draining, .stays = &c->at.stays };
        int err = nbd_transmit(&l, c->ahead, c->nahead);
        info_("%s: %s", c->peer,
              err == 0                   ? "said goodbye"
              : err == -EPROTO           ? "closed: what it sent is no NBD request"
              : nbd_fence_is_cut(&c->at) ? "is cut off"
              : err == -EPIPE            ? "went without goodbye"
                                         : strerror(-err));
        if (err == 0)
                nbd_fence_leave(&c->at, true);
        else if (breaks_for_a_while(c))
                nbd_export_await(c->at.e, &c->at.who);
}

/* The end of a connection that is in the list. */
static void end(struct nbd_connection *c)
{
        struct party *party = c->party;

        nbd_tls_end(&c->wire);
        /* Before others learn that it has gone: the one that replaces it counts. */
        party_disconnect(party);
        nbd_fence_exit(&c->at);
        party_put(party);
        free(c->h);
        free(c);
}

static void *connection_main(void *arg)
{
        serve(arg);
        end(arg);
        return NULL;
}

static void turn_away(struct nbd_connection *c)
{
        if (c->h->end == NBD_HS_OPTION)         /* with greet.c's answers */
                nbd_handshake_go_on(c->h);
        nbd_tls_end(&c->wire);
        close(c->at.fd);
        if (c->party)
                party_put(c->party);
        free(c->h);
        free(c);
}

/* It is in the list before its thread begins, and before `stopping` is read: so the end of memnode
 * waits for it, or it is refused. */
void nbd_serve(struct nbd_connection *c)
{
        pthread_t id;

        if (!c->party || !party_connect(c->party, false)) {
                nbd_refused(c, REFUSED_LIMIT, "%s has as many connections as it may have, or all "
                            "together have", c->party ? party_name(c->party) : "it");
                turn_away(c);
                return;
        }
        nbd_fence_enter(&c->at);
        int err = atomic_load_explicit(&stopping, memory_order_relaxed)
                          ? -ESHUTDOWN
                          : nbd_thread(&id, connection_main, c, true);
        if (err && err != -ESHUTDOWN)
                nbd_refused(c, REFUSED_LIMIT, "no thread can be made for it: %s", strerror(-err));
        if (err)
                end(c);
}

/* ---- Draining ---- */

void nbd_drain(void)
{
        nbd_export_drain();
        atomic_store_explicit(&draining, true, memory_order_relaxed);
}

static void say_waits(const struct nbd_fenced *at)
{
        const struct nbd_connection *c = (const struct nbd_connection *)at;

        warnx_("draining: %s has not moved away yet", c->peer);
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
