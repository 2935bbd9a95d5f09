/*
 * One connection to an NBD server, as a state machine.
 *
 * The socket is made and connected here, so that it can be a private descriptor (privfd_move())
 * with our own deadline.  libnbd gets it when the peer has answered.  Then come the handshake, the
 * choice of the export, and the mark.
 *
 * A new connection must lead to the data written over the old one: a restarted server may have the
 * same export, empty.  A lease of memnode has its incarnation for that (lease.c).  Other exports
 * get a mark: it is random, is written into the last page of the export when the node is opened,
 * and is read on every further connection before anything else.  As with any other page, one wrong
 * answer may be the network's: the mark is read once more before the data counts as gone.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "base/privfd.h"
#include "common/size.h"
#include "far/nbd/claim.h"
#include "far/nbd/export.h"
#include "far/nbd/lease.h"
#include "far/nbd/link.h"
#include "far/nbd/tls.h"

uint64_t nbd_clock(struct nbd_node *d)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
        uint64_t ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000,
                 passed = d->looked ? ms - d->looked : 0;
        const uint64_t most = d->far->hands_back ? NBD_STEP_MS : NBD_GAP_MS;
        d->looked = ms;
        d->clock += passed < most ? passed : most;
        return d->clock;
}

int nbd_say_down(char why[FAR_WHY])
{
        snprintf(why, FAR_WHY, "the node is down: its connections are being made again");
        return -ENOLINK;
}

/* libnbd closes the socket when a connection ends, otherwise in nbd_close().  Either way it uses
 * plain close(), which does not clear the private mark. */
void nbd_link_close(struct nbd_link *l)
{
        nbd_tls_stop(l);
        if (!l->h && l->fd >= 0)
                privfd_close(l->fd);
        if (l->h && l->fd >= 0 && nbd_aio_get_fd(l->h) == l->fd)
                privfd_forget(l->fd);
        else if (l->h && l->fd >= 0)
                privfd_closed(l->fd);
        nbd_close(l->h);
        l->h = NULL;
        l->fd = -1;
        l->state = LINK_DOWN;
        l->failed = 0;                  /* all are sent again on the next connection */
        if (l == &l->node->link[0])
                l->node->status.under_way = 0;
}

void nbd_link_fail(struct nbd_link *l, int err, const char *fmt, ...)
{
        va_list ap;
        char text[FAR_WHY];             /* fmt's arguments may be l->why */

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        strcpy(l->why, text);
        l->err = err;
        nbd_link_close(l);
        l->until = l->node->clock + NBD_PAUSE_MS;
        if (!l->trouble)
                l->trouble = l->node->clock;
}

/* libnbd's message about a failure, without the function's name before it; valid until the next
 * call of libnbd in this thread. */
static const char *nbd_says(void)
{
        const char *s = nbd_get_error(), *rest = s ? strstr(s, ": ") : NULL;
        return rest ? rest + 2 : s ? s : "no reason given";
}

bool nbd_link_broken(struct nbd_link *l)
{
        if (nbd_aio_is_closed(l->h))
                nbd_link_fail(l, -ECONNRESET, "%s closed the connection: see the server's log",
                              l->node->target.name);
        else if (nbd_aio_is_dead(l->h))
                nbd_link_fail(l, -ECONNRESET,
                              "the connection to %s broke (%.100s): see the server's log",
                              l->node->target.name, nbd_says());
        else
                return false;
        return true;
}

/* ---- The socket ---- */

static void explain_connect(struct nbd_link *l, int err)
{
        const struct nbd_target *t = &l->node->target;

        switch (err) {
        case ECONNREFUSED:
                nbd_link_fail(l, -err,
                              "%s refuses connections: is an NBD server running there? Start "
                              "memnode --listen nbd%s",
                              t->name, t->socket ? "+unix://" : "://, or check the port");
                break;
        case ENOENT:
                nbd_link_fail(l, -err, "there is no %s: start the server first, or check the path",
                              t->name);
                break;
        case EACCES:
        case EPERM:
                nbd_link_fail(l, -err, "%s may not be used (%s): check %s", t->name, strerror(err),
                              t->socket ? "its permissions" : "the firewall");
                break;
        case EAGAIN:
                nbd_link_fail(l, -err,
                              "%s has too many clients that wait: see why its server does not "
                              "accept them",
                              t->name);
                break;
        case ETIMEDOUT:
                nbd_link_fail(l, -err,
                              "%s does not answer (%llu s): check that the host is up and that its "
                              "firewall lets the port through",
                              t->name,
                              (unsigned long long)(l->node->set.connect_timeout_ms + 999) / 1000);
                break;
        default:
                nbd_link_fail(
                        l, -err,
                        "cannot connect to %s: %s: check the host, its network and its firewall",
                        t->name, strerror(err));
        }
}

/* Tries the next address of a host that has several; else the link is down. */
static void connect_failed(struct nbd_link *l, int err)
{
        struct nbd_node *d = l->node;

        explain_connect(l, err);
        l->refused = err == ECONNREFUSED || err == ENOENT ? l->refused + 1 : 0;
        if (!d->found && err != EAGAIN && l->address + 1 < d->target.addresses) {
                l->address++;
                l->until = d->clock;
        }
}

static void link_connect(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        union nbd_address *a = &d->target.address[l->address];
        const int one = 1;

        l->words[0] = '\0';
        l->tried = d->clock;
        l->fd = PRIVFD_NEW(socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (l->fd < 0) {
                nbd_link_fail(l, l->fd, "cannot make a socket: %s: raise `ulimit -n`",
                              strerror(-l->fd));
                return;
        }
        /* requests are small, and a thread waits for each */
        if (a->any.sa_family != AF_UNIX)
                setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        l->state = LINK_CONNECTING;
        /* Of several addresses each gets its share of the time. */
        l->until = d->clock + d->set.connect_timeout_ms / (d->found ? 1 : d->target.addresses);
        if (connect(l->fd, &a->any, d->target.length[l->address]) != 0 && errno != EINPROGRESS)
                connect_failed(l, errno);
}

/* Copies text from a server, made safe for a terminal. */
static void take_words(char *to, size_t size, const char *from)
{
        size_t n = 0;
        for (; *from && n < size - 1; from++)
                to[n++] = *from >= ' ' && *from < 127 ? *from : '?';
        to[n] = '\0';
}

/* libnbd's debugging output is the only source of the text of a refusal; none of it is printed. */
static int hear(void *link, const char *context, const char *message)
{
        static const char prefix[] = "handshake: server error message: ";
        struct nbd_link *l = link;

        (void)context;
        if (strncmp(message, prefix, strlen(prefix)) == 0)
                take_words(l->words, sizeof(l->words), message + strlen(prefix));
        return 0;
}

/* With LIBNBD_DEBUG=1, which is meant for the program, nbd_create() would write to file descriptor
 * 2, which by then may be any file of the program.  There is no other way to stop that, so the
 * variable has another value meanwhile. */
static struct nbd_handle *create_silently(void)
{
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* guards that variable */

        pthread_mutex_lock(&lock);
        char *debug = getenv("LIBNBD_DEBUG"), was = debug ? *debug : '\0';

        if (was)
                *debug = '0';
        struct nbd_handle *h = nbd_create();
        if (was)
                *debug = was;
        pthread_mutex_unlock(&lock);
        return h;
}

static void link_greet(struct nbd_link *l)
{
        l->h = create_silently();
        if (!l->h) {
                nbd_link_fail(l, -ENOMEM, "libnbd: %.150s: free some memory on this host",
                              nbd_says());
                return;
        }
        nbd_debug_callback cb = { .callback = hear, .user_data = l };
        bool set = nbd_set_debug_callback(l->h, cb) == 0 && nbd_set_debug(l->h, true) == 0 &&
                   nbd_set_opt_mode(l->h, true) == 0 &&
                   nbd_set_tls(l->h, LIBNBD_TLS_DISABLE) == 0 &&
                   nbd_set_full_info(l->h, true) == 0 &&        /* a lease's incarnation */
                   /* Simple replies carry whole pages.  They are shorter, and no reply can leave
                    * part of a page unwritten. */
                   nbd_set_request_structured_replies(l->h, false) == 0 &&
                   nbd_set_pread_initialize(l->h, false) == 0;
        if (!set) {
                int err = nbd_get_errno();
                privfd_close(l->fd);
                l->fd = -1;
                nbd_link_fail(l, err ? -err : -EINVAL,
                              "libnbd: %.150s: install vmrun for this version of it", nbd_says());
                return;
        }
        l->state = LINK_GREETING;
        l->answer = NBD_WAITING;
        if (l->node->set.tls) {
                int err = nbd_tls_begin(l);
                if (err) {
                        privfd_close(l->fd);
                        l->fd = -1;
                        nbd_link_fail(l, err == -EAGAIN ? -ENOMEM : err,
                                      "no thread can be made for TLS: %s: raise `ulimit -u`",
                                      strerror(-err));
                }
                return;
        }
        if (nbd_aio_connect_socket(l->h, l->fd) == -1 && !nbd_aio_is_dead(l->h) &&
            !nbd_aio_is_closed(l->h)) {
                privfd_close(l->fd);
                l->fd = -1;
                nbd_link_fail(l, -ENOMEM, "libnbd: %.150s: free some memory on this host",
                              nbd_says());
        }
}

static void step_connecting(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        struct pollfd p = { .fd = l->fd, .events = POLLOUT };
        socklen_t len = sizeof(int);
        int err = 0;

        if (poll(&p, 1, 0) <= 0) {
                if (d->clock >= l->until)
                        connect_failed(l, ETIMEDOUT);
                return;
        }
        if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
                err = errno;
        if (err) {
                connect_failed(l, err);
                return;
        }
        l->refused = 0;
        if (!d->lease && d->lock < 0) {
                char why[FAR_WHY];
                err = nbd_claim(&d->target, l->address, &d->lock, why);
                if (err) {
                        nbd_link_fail(l, err, "%s", why);
                        return;
                }
        }
        link_greet(l);
}

/* ---- The handshake ---- */

/* libnbd's callbacks must not call it again with this handle: they note the outcome. */
static int answered(void *link, int *error)
{
        struct nbd_link *l = link;

        l->answer = *error;
        if (*error && !l->words[0])
                take_words(l->words, sizeof(l->words), nbd_says());
        return 1;
}

static void fail_no_memnode(struct nbd_link *l)
{
        nbd_link_fail(l, -ENOENT,
                      "the server is no memnode, or one of another version, so it gives no "
                      "leases: install the same version on both, or name one of its exports, as in "
                      "nbd://HOST/NAME");
}

static void explain_refusal(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        char size[32];

        if (strstr(nbd_says(), "TLS"))
                nbd_link_fail(l, -ENOTSUP,
                              "the server wants TLS: give nbds:// in place of nbd://, and a key of "
                              "the server's with keys=FILE");
        else if (l->answer == ESHUTDOWN)
                nbd_link_fail(l, -ESHUTDOWN, "the server is about to end: start it again");
        else if (d->given.incarnation && l->answer == ENOENT)
                nbd_link_fail(l, -ESTALE,
                              "%s answers, but what vmrun had written there is gone: %.120s",
                              d->target.name, l->words);
        else if (d->given.incarnation && l->answer == EINVAL)
                nbd_link_fail(l, -ECANCELED,
                              "%s does not let this process back in, for good: %.120s",
                              d->target.name, l->words);
        else if (d->given.incarnation)
                nbd_link_fail(l, -EAGAIN, "%s does not let this process back in: %.120s",
                              d->target.name, l->words);
        else if (d->lease && l->answer == ENOENT)
                fail_no_memnode(l);
        else if (d->lease)
                nbd_link_fail(l, -ENOSPC,
                              "the server refuses a lease of %s (%.120s): ask for less, as in "
                              "?size=1G",
                              size_text(d->asked, size), l->words);
        else if (l->answer == ENOENT)
                nbd_link_fail(l, -ENOENT,
                              "the server has no export '%.64s': choose one that nbdinfo --list "
                              "shows, or name none for a lease of memnode",
                              d->export);
        else
                nbd_link_fail(l, l->answer > 0 ? -l->answer : -EPROTO,
                              "the server refuses export '%.64s' (%.100s): see its log", d->export,
                              l->words);
}

/* Writes the mark, or reads it. */
static void transfer_mark(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        nbd_completion_callback cb = { .callback = answered, .user_data = l };
        int64_t cookie;

        l->answer = NBD_WAITING;
        memset(l->page, 0, PAGE_SIZE);
        if (d->marked) {
                cookie = nbd_aio_pread(l->h, l->page, PAGE_SIZE, d->bytes, cb, 0);
        } else {
                memcpy(l->page, d->mark, NBD_MARK);
                cookie = nbd_aio_pwrite(l->h, l->page, PAGE_SIZE, d->bytes, cb, 0);
        }
        if (cookie == -1)
                l->answer = nbd_get_errno() ? nbd_get_errno() : EIO;
}

static void begin_marking(struct nbd_link *l)
{
        nbd_set_debug(l->h, false);
        nbd_clear_debug_callback(l->h);
        l->state = l->node->lease ? LINK_UP : LINK_MARKING;
        l->doubted = false;
        if (l->state == LINK_MARKING)
                transfer_mark(l);
}

/* The server serves the export. */
static void end_choosing(struct nbd_link *l)
{
        char why[FAR_WHY];
        int err = nbd_export_fits(l, why);

        if (err)
                nbd_link_fail(l, err, "%s", why);
        else
                begin_marking(l);
}

static void end_marking(struct nbd_link *l)
{
        struct nbd_node *d = l->node;

        if (l->answer) {
                nbd_link_fail(
                        l, -l->answer,
                        "the server fails the first transfer of export '%.64s' (%s): see its log",
                        d->export, strerror(l->answer));
        } else if (d->marked && memcmp(l->page, d->mark, NBD_MARK) != 0 && !l->doubted) {
                l->doubted = true;
                transfer_mark(l);
        } else if (d->marked && memcmp(l->page, d->mark, NBD_MARK) != 0) {
                nbd_link_fail(
                        l, -ESTALE,
                        "%s answers, but what vmrun had written there is gone: the server was "
                        "started anew, or another client writes there",
                        d->target.name);
        } else {
                d->marked = true;
                l->state = LINK_UP;
        }
}

/* Lets libnbd read and write until it would wait.  The number of turns is bounded, in case the
 * server never stops sending. */
static void pump(struct nbd_link *l)
{
        for (unsigned turn = 0; turn < 64; turn++) {
                unsigned direction = nbd_aio_get_direction(l->h);
                struct pollfd p = { .fd = l->fd, .events = 0 };

                p.events |= direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0;
                p.events |= direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0;
                if (!p.events || poll(&p, 1, 0) <= 0)
                        return;
                if (direction & LIBNBD_AIO_DIRECTION_WRITE && p.revents & POLLOUT)
                        nbd_aio_notify_write(l->h);
                else if (direction & LIBNBD_AIO_DIRECTION_READ)
                        nbd_aio_notify_read(l->h);
                else
                        /* an error on a socket that is only written to */
                        nbd_aio_notify_write(l->h);
                if (l->answer != NBD_WAITING || nbd_aio_is_negotiating(l->h) ||
                    nbd_aio_is_ready(l->h))
                        return;
        }
}

/*
 * Some servers accept every name: clients that ask them for leases would all get one memory.  So
 * before the first lease, a server must refuse a name that is as random as a lease's but is not
 * one.
 */
static void begin_probing(struct nbd_link *l)
{
        nbd_completion_callback cb = { .callback = answered, .user_data = l };
        char name[64];

        /* as random as a lease's name, but not one */
        if (nbd_lease_draw(name) != 0) {
                nbd_link_fail(l, -EIO, "no random numbers for the name of a lease");
                return;
        }
        l->state = LINK_PROBING;
        l->answer = NBD_WAITING;
        if (nbd_set_export_name(l->h, name) == -1 || nbd_aio_opt_info(l->h, cb) == -1)
                nbd_link_fail(l, -EPROTO, "libnbd: %.150s", nbd_says());
}

static void begin_choosing(struct nbd_link *l)
{
        nbd_completion_callback cb = { .callback = answered, .user_data = l };
        char name[NBD_NAME];
        const struct nbd_node *d = l->node;

        l->state = l->cut ? LINK_CUTTING : LINK_CHOOSING;
        l->answer = NBD_WAITING;
        l->words[0] = '\0';
        if (d->lease && nbd_lease_ask(l, name) != 0)
                nbd_link_fail(l, -EIO, "no random numbers for the name of a lease");
        else if (nbd_set_export_name(l->h, d->lease ? name : d->export) == -1 ||
                 (l->cut ? nbd_aio_opt_info(l->h, cb) : nbd_aio_opt_go(l->h, cb)) == -1)
                nbd_link_fail(l, -EPROTO, "libnbd: %.150s", nbd_says());
}

static void end_probing(struct nbd_link *l)
{
        /* the server requires TLS, or is too old for the question */
        if (l->answer == ENOTSUP)
                explain_refusal(l);
        else if (l->answer == 0)
                fail_no_memnode(l);
        else
                begin_choosing(l);
}

/* memnode closes newcomers when too many come at once: that is no reason to give up yet, and they
 * should not all come again at the same moment. */
static bool shown_out(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        uint8_t chance = 0;

        if (!l->shown_out)
                l->shown_out = d->clock;
        if (d->clock - l->shown_out >= d->set.connect_timeout_ms)
                return false;
        nbd_link_fail(l, -EAGAIN, "%s closes connections before they are up: see its log: too many "
                      "may come at once", d->target.name);
        getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
        l->until += chance;
        return true;
}

static void explain_tls(struct nbd_link *l, const char *says)
{
        const char *text = strstr(says, ": ") ? strstr(says, ": ") + 2 : says;

        if (l->tls.err && *l->why)
                nbd_link_fail(l, l->tls.err, "%s", l->why);
        else if (strstr(says, "alert"))
                nbd_link_fail(l, -EACCES,
                              "%s does not take our key: let keys= name a file with a line that "
                              "the server has too (memnode --keys)", l->node->target.name);
        else if (strstr(says, "refused") || strstr(says, "not supported") || !shown_out(l))
                nbd_link_fail(l, -EPROTO,
                              "TLS with %s fails (%.100s): let keys= name a file with a line that "
                              "the server has too, start memnode with --keys, or check the port",
                              l->node->target.name, text);
}

static void explain_end(struct nbd_link *l)
{
        if (l->state == LINK_GREETING && l->node->set.tls)
                explain_tls(l, *l->tls.says ? l->tls.says : "it closed the connection");
        else if (l->state == LINK_GREETING)
                nbd_link_fail(l, -EPROTO,
                              "%s does not answer as an NBD server does (%.100s): check the port "
                              "and what listens there",
                              l->node->target.name,
                              nbd_aio_is_dead(l->h) ? nbd_says() : "it closed the connection");
        else if ((l->state == LINK_CHOOSING || l->state == LINK_CUTTING) && l->answer > 0 &&
                 l->answer != ENOTCONN)
                explain_refusal(l);
        else
                nbd_link_broken(l);
}

static void step_libnbd(struct nbd_link *l)
{
        struct nbd_node *d = l->node;

        if (!nbd_tls_is_over(l))
                return;
        if (l->state == LINK_GREETING && l->tls.err) {
                explain_end(l);
                return;
        }
        pump(l);
        bool negotiating = nbd_aio_is_negotiating(l->h), over = l->answer != NBD_WAITING;
        if (negotiating)
                l->shown_out = 0;
        if (nbd_aio_is_dead(l->h) || nbd_aio_is_closed(l->h))
                explain_end(l);
        else if (l->state == LINK_GREETING && negotiating)
                d->lease && !d->given.incarnation ? begin_probing(l) : begin_choosing(l);
        else if (l->state == LINK_PROBING && negotiating && over)
                end_probing(l);
        else if (l->state == LINK_CUTTING && negotiating && over && !l->answer)
                l->state = LINK_UP;
        else if ((l->state == LINK_CHOOSING || l->state == LINK_CUTTING) && negotiating && over)
                explain_refusal(l);
        else if (l->state == LINK_GREETING && nbd_aio_is_ready(l->h) &&
                 d->lease) /* an old server, which has only one export */
                fail_no_memnode(l);
        else if (l->state <= LINK_CHOOSING && nbd_aio_is_ready(l->h))
                end_choosing(l);
        else if (l->state == LINK_MARKING && over)
                end_marking(l);
}

void nbd_link_step(struct nbd_link *l)
{
        enum nbd_state before;

        do {
                before = l->state;
                if (before == LINK_DOWN && l->node->clock >= l->until)
                        link_connect(l);
                else if (before == LINK_CONNECTING)
                        step_connecting(l);
                else if (before != LINK_DOWN)
                        step_libnbd(l);
        } while (l->state != before && l->state != LINK_UP && l->state != LINK_DOWN);
}

bool nbd_link_waits(const struct nbd_link *l, struct pollfd *p)
{
        *p = (struct pollfd){ .fd = l->fd };
        if (l->state == LINK_DOWN || l->tls.runs)
                return false;
        if (l->state == LINK_CONNECTING) {
                p->events = POLLOUT;
                return true;
        }
        unsigned direction = nbd_aio_get_direction(l->h);
        p->events |= direction & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0;
        p->events |= direction & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0;
        return true;
}
