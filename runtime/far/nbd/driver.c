/*
 * nbd://HOST[:PORT][/EXPORT], nbds:// with TLS and a key, and nbd+unix:///[EXPORT]?socket=PATH: far
 * memory on an NBD server, through libnbd.
 *
 * Without EXPORT the server is memnode, and is asked for a lease: an export that no other client
 * knows.  Its size is that of the option size=. With EXPORT the server may be any, and the whole
 * export is used, from its first byte on.
 *
 * A server that offers multi-conn gets three connections, one for each kind of transfer: a demand
 * read then does not wait behind write-backs.  A page written through one connection and read
 * through another needs no FLUSH: the guest reads no slot before its write-back is over, and by
 * multi-conn the server promises that a completed write is seen on all connections.
 *
 * When a server ends a connection, a new one is made, and everything in flight is sent again:
 * transfers are whole pages, and the guest uses neither frame nor slot of an unfinished transfer.
 * Silence alone never makes a new connection: the server could still carry out an old write of a
 * slot, from the old connection, after a newer write of that slot from the new connection.  TCP
 * itself retransmits the data that a broken link has lost.  A transfer that takes longer than
 * `timeout_ms` ends vmrun.  All that is different if other nodes have copies of the pages: see
 * trouble.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "base/host.h"
#include "base/message.h"
#include "base/privfd.h"
#include "common/size.h"
#include "far/nbd/data.h"
#include "far/nbd/lease.h"
#include "far/nbd/lease_cut.h"
#include "far/nbd/link.h"
#include "far/nbd/node.h"
#include "far/nbd/status.h"
#include "far/nbd/target.h"
#include "far/nbd/trouble.h"
#include "far/sum.h"

/* polls without an arm() between two reads of the sockets */
#define UNASKED 16

/* ---- Open and close ---- */

/* The export's data for the next program.  Like a forked child, that program connects when it first
 * needs a slab. */
struct kept {
        union nbd_address address;
        socklen_t length;
        unsigned nlinks, most;
        uint64_t bytes;
        struct nbd_lease given;
        bool keeps;                     /* nbd_status.keeps */
        char mark[NBD_MARK];
        char export[];                  /* "" for a lease */
};
#define EXPORT_MAX (FAR_KEPT - sizeof(struct kept))

static bool nbd_keep(const struct far_node *n, struct far_kept_node *k)
{
        const struct nbd_node *d = n->data;
        struct kept *to = (struct kept *)k->data;

        if (n->alone || (d->export && strlen(d->export) >= EXPORT_MAX))
                return false;
        *to = (struct kept){ .address = d->target.address[0],
                             .length = d->target.length[0],
                             .nlinks = d->nlinks,
                             .most = d->most,
                             .bytes = d->bytes,
                             .given = d->given,
                             .keeps = d->status.keeps };
        memcpy(to->mark, d->mark, NBD_MARK);
        strcpy(to->export, d->export ? d->export : "");
        k->fd = d->lock;
        return true;
}

static int take_over(struct nbd_node *d, char why[FAR_WHY])
{
        const struct far_kept_node *k = d->far->inherited;
        const struct kept *from = (const struct kept *)k->data;

        d->target.address[0] = from->address;
        d->target.length[0] = from->length;
        d->target.addresses = 1;
        d->found = true;
        d->nlinks = from->nlinks;
        d->most = from->most;
        d->multi = true;
        d->bytes = from->bytes;
        d->given = from->given;
        d->status.keeps = from->keeps;
        memcpy(d->mark, from->mark, NBD_MARK);
        d->marked = !d->lease;
        d->lock = k->fd;
        d->export = d->lease ? NULL : strdup(from->export);
        if (!d->lease && !d->export)
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
        return d->lease || d->export ? 0 : -ENOMEM;
}

/* Chooses the export's name and makes the mark.  0, or -errno with why. */
static int prepare(struct nbd_node *d, char why[FAR_WHY])
{
        static const char sign[] = "a page of vmrun's";

        d->lease = !d->target.export;
        d->asked = d->set.size & ~(uint64_t)(PAGE_SIZE - 1);
        if (d->lease && !d->asked) {
                snprintf(why, FAR_WHY,
                         "a lease over NBD is taken as a whole at start: say how much, as in "
                         "?size=4G");
                return -EINVAL;
        }
        if (d->far->inherited)
                return take_over(d, why);
        strcpy(d->mark, sign);
        if (getrandom(d->mark + sizeof(sign), NBD_MARK - sizeof(sign), 0) !=
            (ssize_t)(NBD_MARK - sizeof(sign))) {
                snprintf(why, FAR_WHY, "no random numbers: %s", strerror(errno));
                return -EIO;
        }
        if (d->lease)
                return 0;
        d->export = strdup(d->target.export);
        if (!d->export)
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
        return d->export ? 0 : -ENOMEM;
}

static int connect_first(struct nbd_node *d, char why[FAR_WHY])
{
        char less[FAR_WHY];
        int err = nbd_target_resolve(&d->target, d->set.connect_timeout_ms, why);

        if (!err)
                err = nbd_bring_up(&d->link[0], why);
        if (err)
                return err;
        unsigned at = d->link[0].address;
        d->target.address[0] = d->target.address[at];
        d->target.length[0] = d->target.length[at];
        d->link[0].address = 0;
        d->found = true;
        for (d->nlinks = 1; d->multi && d->nlinks < NBD_LINKS; d->nlinks++) {
                err = nbd_bring_up(&d->link[d->nlinks], less);
                /* the server has no real multi-conn, or was restarted just now */
                if (err == -ESTALE) {
                        memcpy(why, less, FAR_WHY);
                        return err;
                }
                if (err) {
                        info_("%s: only %u of %u connections: %s", d->far->url, d->nlinks,
                              NBD_LINKS, less);
                        break;
                }
        }
        return 0;
}

/* Both kinds of URL are in one module. */
static bool names_socket(const char *url)
{
        return strncmp(url, "nbd+unix:", strlen("nbd+unix:")) == 0;
}

static int nbd_check(const struct node_option *o, const char *rest, char why[FAR_WHY])
{
        struct nbd_target t = { .text = NULL };
        int err = nbd_target_parse(&t, rest, names_socket(o->url), why);

        nbd_target_free(&t);
        return err;
}

static int nbd_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        struct nbd_node *d = nbd_node_new(n);

        if (!d) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        int err = nbd_target_parse(&d->target, rest, names_socket(n->url), why);
        if (!err)
                err = prepare(d, why);
        if (!err && !n->inherited)
                err = connect_first(d, why);
        if (err) {
                nbd_node_free(d);
                return err;
        }
        n->pages = d->bytes / PAGE_SIZE;
        n->kept = d->lease ? 0 : 1;     /* the mark's */
        /* another connection might not see the pages written over this one */
        n->alone = !d->multi;
        n->fences = d->lease;
        if (d->set.size && d->set.size / PAGE_SIZE < n->pages)
                n->pages = d->set.size / PAGE_SIZE;
        n->data = d;
        return 0;
}

static void nbd_node_close(struct far_node *n)
{
        nbd_node_free(n->data);
        n->data = NULL;
}

/* The whole export was taken at open, so a slab needs no answer. */
static int take_slab(struct far_node *n, uint64_t first, uint32_t pages)
{
        struct nbd_node *d = n->data;

        /* then lost is read: lost() in trouble.c uses the opposite order */
        atomic_store(&d->leased, true);
        if (atomic_load(&d->lost))
                return -ENOLINK;
        return first <= n->pages && pages <= n->pages - first ? 0 : -ENOSPC;
}

static int nbd_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                     struct slab *s, struct far_place *place)
{
        (void)vm;
        (void)s;
        (void)place;
        return nbd_is_down(n) ? -ENOLINK : take_slab(n, first, pages);
}

static int nbd_use(struct far_node *n, struct far_place *place, uint32_t pages)
{
        return take_slab(n, place->first, pages);
}

/* libnbd's handles are closed without a goodbye: the connections are the parent's, and stay
 * open. */
static bool nbd_forked(struct far_node *n)
{
        struct nbd_node *d = n->data;

        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                nbd_link_close(l);
                nbd_slots_reset(l);
                l->refused = 0;
                l->err = 0;
        }
        return false;
}

/* A connection on which TLS is about to begin is made later. */
static void nbd_rest(struct far_node *n)
{
        struct nbd_node *d = n->data;

        for (unsigned i = 0; i < d->nlinks; i++)
                if (d->link[i].tls.runs) {
                        nbd_link_close(&d->link[i]);
                        d->link[i].until = d->clock;
                }
}

static void nbd_describe(const struct far_node *n, char *text, size_t size)
{
        const struct nbd_node *d = n->data;
        char a[32];

        snprintf(text, size, "%s: %s, %s, %u connection%s", n->url,
                 size_text(n->pages * PAGE_SIZE, a), d->lease ? "a lease of memnode" : "an export",
                 d->nlinks, d->nlinks == 1 ? "" : "s");
}

/* ---- Poll and arm ---- */

static unsigned nbd_poll_node(struct far_node *n)
{
        struct nbd_node *d = n->data;
        unsigned done = 0;
        bool all = d->armed;
        bool over = false, told = d->status.under_way && d->passes % UNASKED == 0;

        if (atomic_load_explicit(&d->lost, memory_order_relaxed))       /* by this thread */
                return 0;
        nbd_clock(d);
        d->armed = false;
        d->passes = all ? 0 : d->passes + 1;
        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                if (l->state == LINK_UP) {
                        /* Right after sending there is no answer yet.  If this thread sleeps for
                         * completions, it returns by way of arm().  Only if it does not (another
                         * node keeps it busy) must we read the sockets unasked. */
                        if (l->done || all || (l->used && d->passes % UNASKED == 0) ||
                            (told && i == 0))
                                done += nbd_take_answers(l);
                        continue;
                }
                nbd_link_step(l);
                over |= nbd_link_is_over(l);
                if (l->state == LINK_UP)
                        nbd_resume(l);
        }
        if (n->hands_back)
                nbd_watch(d);
        nbd_status_look(d);
        /* A link that is over is judged now: at the next look it could be trying again, each
         * time. */
        if (over || d->clock - d->judged >= NBD_TICK_MS / 2) {
                d->judged = d->clock;
                for (unsigned i = 0;
                     i < d->nlinks && !atomic_load_explicit(&d->lost, memory_order_relaxed); i++)
                        nbd_judge(&d->link[i]);
        }
        return done;
}

static int nbd_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms)
{
        struct nbd_node *d = n->data;
        unsigned used = 0;
        const int tick = n->hands_back ? NBD_SOON_MS : NBD_TICK_MS;
        int ms = -1;

        if (atomic_load_explicit(&d->lost, memory_order_relaxed))
                return 0;

        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                struct pollfd p;

                if (l->used || l->state != LINK_UP)
                        ms = ms >= 0 && ms < tick ? ms : tick;
                if (l->tls.runs)
                        ms = NBD_LOOK_MS;
                if (l->state == LINK_DOWN && l->until < d->clock + (uint64_t)ms)
                        ms = l->until > d->clock ? (int)(l->until - d->clock) : 0;
                if (!nbd_link_waits(l, &p) || !p.events)
                        continue;
                if (used < max)
                        fds[used++] = p;
                else
                        /* no room in fds to wait for it: poll often */
                        ms = ms >= 0 && ms < 1 ? ms : 1;
        }
        if (ms >= 0 && (*timeout_ms < 0 || ms < *timeout_ms))
                *timeout_ms = ms;
        nbd_status_arm(d, timeout_ms);
        d->armed = true;
        return (int)used;
}

/* ---- Attach ---- */

/* For a node that hands back: waits a moment for the links, so that it is normally up. */
static int join(struct nbd_node *d, char why[FAR_WHY])
{
        struct far_node *n = d->far;
        uint64_t end = d->clock + NBD_JOIN_MS;

        for (nbd_poll_node(n); nbd_is_down(n) && !n->lost && d->clock < end; nbd_poll_node(n)) {
                struct pollfd fds[NBD_LINKS];
                int ms = NBD_SOON_MS, used = nbd_arm(n, fds, NBD_LINKS, &ms);

                poll(fds, (nfds_t)used, ms);
        }
        if (n->lost)
                memcpy(why, n->why, FAR_WHY);
        return n->lost ? -ENOLINK : 0;
}

/* Frames need no registration: libnbd copies between them and the socket.  In a forked child poll()
 * makes the links.  Until then the links of the parent, or of another process of the tree, keep the
 * lease, and after them the grace time. */
static int nbd_attach(struct far_node *n, char *base, size_t len, char why[FAR_WHY])
{
        struct nbd_node *d = n->data;
        uint64_t now = nbd_clock(d);

        (void)base;
        (void)len;
        for (unsigned i = 0; i < d->nlinks; i++)
                if (d->link[i].state == LINK_DOWN)
                        d->link[i].trouble = d->link[i].until = now;
        return n->hands_back ? join(d, why) : 0;
}

/* A key is read from a file by its name. */
#define NBD_DRIVER(name, with_key)                                                                 \
        {                                                                                          \
                .scheme = name, .own_rights = with_key, .kind = SLAB_REMOTE,                       \
                .check = nbd_check, .open = nbd_open, .lease = nbd_lease,                          \
                .close = nbd_node_close, .describe = nbd_describe, .keep = nbd_keep,               \
                .attach = nbd_attach, .forked = nbd_forked, .post = nbd_post, .use = nbd_use,      \
                .poll = nbd_poll_node, .arm = nbd_arm, .cut = nbd_lease_cut, .sum = far_sum,       \
                .rest = nbd_rest, .answer = nbd_answer,                                            \
        }
static const struct far_driver far_nbd = NBD_DRIVER("nbd", false),
                               far_nbds = NBD_DRIVER("nbds", true),
                               far_nbd_unix = NBD_DRIVER("nbd+unix", false);

extern const struct far_driver *const far_module[];
const struct far_driver *const far_module[] = { &far_nbd, &far_nbds, &far_nbd_unix, NULL };
