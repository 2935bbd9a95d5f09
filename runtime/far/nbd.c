/*
 * nbd://HOST[:PORT][/EXPORT] and nbd+unix:///[EXPORT]?socket=PATH: far memory on an NBD server, through libnbd.
 *
 * Without EXPORT the server is memnode, and is asked for a lease: an export that nobody else knows.  Its size is that of the option
 * size=.  With EXPORT it is any server's, used from its first byte on and as a whole.
 *
 * A server that says multi-conn gets three connections, one for each kind of transfer: a demand read then does not wait behind
 * write-backs.  That a page is written through one and read through another needs no FLUSH: the guest reads no slot before its write-back
 * is over, and by multi-conn the server promises that what is over is seen by all.
 *
 * When a server ends a connection, a new one is made, and everything in flight goes out again: transfers are whole pages, and the guest
 * uses neither frame nor slot of one that is not over.  Silence alone never makes a new connection: the server could still carry out an
 * old write from the old one after a newer write to the same slot had gone through the new one.  TCP itself sends again what a broken link
 * has swallowed.  Whatever takes longer than `timeout_ms` ends vmrun.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "../check.h"
#include "../vmrun.h"
#include "nbd.h"

#define POLL_BATCH 16                   /* answers taken from a link before the next has its turn */

/* ---- Open and close ---- */

/* A lease is free again when its server has read a goodbye on all connections: which is when it has closed them. */
static void say_goodbye(struct nbd_node *d)
{
        int64_t end = (int64_t)nbd_clock(d) + NBD_GOODBYE_MS;

        for (unsigned i = 0; i < NBD_LINKS; i++) {
                if (d->link[i].state != LINK_UP)
                        continue;
                nbd_aio_disconnect(d->link[i].h, 0);
                if (!nbd_aio_is_ready(d->link[i].h))    /* libnbd waits for an answer after a look that found none, and sends nothing */
                        nbd_aio_notify_read(d->link[i].h);
        }
        for (unsigned i = 0; i < NBD_LINKS; i++)
                while (d->link[i].state == LINK_UP && nbd_aio_is_closed(d->link[i].h) == 0 && nbd_aio_is_dead(d->link[i].h) == 0 &&
                       (int64_t)nbd_clock(d) < end)
                        if (nbd_poll(d->link[i].h, (int)(end - (int64_t)d->clock)) < 0)
                                break;
}

static void nbd_node_free(struct nbd_node *d)
{
        say_goodbye(d);
        for (unsigned i = 0; i < NBD_LINKS; i++) {
                struct nbd_link *l = &d->link[i];
                nbd_link_close(l);
                for (unsigned k = 0; k < NBD_DEPTH; k++)
                        free(l->slot[k].gathered);
                free(l->page);
        }
        if (d->lock >= 0)
                privfd_close(d->lock);
        nbd_target_free(&d->target);
        free(d->export);
        free(d);
}

static struct nbd_node *node_new(struct far_node *n)
{
        struct nbd_node *d = calloc(1, sizeof(*d));

        if (!d)
                return NULL;
        d->far = n;
        d->set = nbd_settings(n);
        d->lock = -1;
        d->clock = 1;                   /* 0 is no time */
        bool ok = true;
        for (unsigned i = 0; i < NBD_LINKS; i++) {
                struct nbd_link *l = &d->link[i];
                l->node = d;
                l->fd = -1;
                ok &= (l->page = malloc(PAGE_SIZE)) != NULL;
                for (unsigned k = NBD_DEPTH; k-- > 0; ) {
                        l->slot[k].link = l;
                        l->slot[k].next = l->free;
                        l->free = &l->slot[k];
                }
        }
        if (ok)
                return d;
        nbd_node_free(d);
        return NULL;
}

/* Over execve goes the mark, behind which the server finds out that it is the same export, and the name of that. */
static bool nbd_keep(const struct far_node *n, struct far_kept_node *k)
{
        const struct nbd_node *d = n->data;

        if (n->alone || strlen(d->export) >= FAR_KEPT - NBD_MARK)
                return false;
        memcpy(k->data, d->mark, NBD_MARK);
        strcpy(k->data + NBD_MARK, d->export);
        k->fd = d->lock;
        return true;
}

static int take_over(struct nbd_node *d, char why[FAR_WHY])
{
        const struct far_kept_node *k = d->far->inherited;

        memcpy(d->mark, k->data, NBD_MARK);
        d->export = strdup(k->data + NBD_MARK);
        d->lock = k->fd;
        d->inherited = true;
        if (!d->export)
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
        return d->export ? 0 : -ENOMEM;
}

/* What is to be asked for, and the mark.  0, or -errno with why. */
static int prepare(struct nbd_node *d, char why[FAR_WHY])
{
        static const char sign[] = "a page of vmrun's";

        d->lease = !d->target.export;
        d->asked = d->set.size & ~(uint64_t)(PAGE_SIZE - 1);
        if (d->lease && d->asked < 2 * PAGE_SIZE) {
                snprintf(why, FAR_WHY, "a lease over NBD is taken as a whole at start: say how much, two pages at least, as in ?size=4G");
                return -EINVAL;
        }
        if (d->far->inherited)
                return take_over(d, why);
        strcpy(d->mark, sign);
        if (getrandom(d->mark + sizeof(sign), NBD_MARK - sizeof(sign), 0) != (ssize_t)(NBD_MARK - sizeof(sign))) {
                snprintf(why, FAR_WHY, "no random numbers: %s", strerror(errno));
                return -EIO;
        }
        if (d->lease)
                return nbd_lease_name(d->asked, d->set.token_file, &d->export, why);
        if (d->set.token_file) {
                snprintf(why, FAR_WHY, "token-file= is for leases of memnode: leave it out, or the name of the export");
                return -EINVAL;
        }
        d->export = strdup(d->target.export);
        if (!d->export)
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
        return d->export ? 0 : -ENOMEM;
}

static void explain_silence(const struct nbd_link *l, uint64_t ms, char why[FAR_WHY])
{
        const char *name = l->node->target.name;
        unsigned long long s = (ms + 500) / 1000;

        if (l->state == LINK_CONNECTING)
                snprintf(why, FAR_WHY, "%s does not answer (%llu s): check that the host is up and that its firewall lets the port through", name, s);
        else if (l->state == LINK_GREETING)
                snprintf(why, FAR_WHY, "%s takes connections but says nothing (%llu s): check that an NBD server listens there and has a free client", name, s);
        else
                snprintf(why, FAR_WHY, "the NBD server at %s does not answer (%llu s): see its log, or raise --connect-timeout", name, s);
}

/* Waits until the link is up.  0, or -errno with why. */
static int bring_up(struct nbd_link *l, char why[FAR_WHY])
{
        struct nbd_node *d = l->node;
        uint64_t begin = nbd_clock(d);
        /* memnode zeroes a lease before it answers. */
        uint64_t zeroing = d->lease && l == &d->link[0] ? d->asked >> 20 : 0;

        for (l->until = begin; ; nbd_clock(d)) {
                struct pollfd p;
                uint64_t passed = d->clock - begin, limit = d->set.connect_timeout_ms + (l->state >= LINK_CHOOSING ? zeroing : 0);

                nbd_link_step(l);
                if (l->state == LINK_UP)
                        break;
                bool again = l->err == -EAGAIN || l->until <= d->clock;
                if (l->state == LINK_DOWN && (!again || passed >= limit)) {
                        memcpy(why, l->why, FAR_WHY);
                        return l->err;
                }
                if (passed >= limit) {
                        explain_silence(l, passed, why);
                        nbd_link_close(l);
                        return -ETIMEDOUT;
                }
                int ms = limit - passed < 50 ? (int)(limit - passed) : 50;
                poll(&p, nbd_link_waits(l, &p), ms);
        }
        l->trouble = 0;
        return 0;
}

static int nbd_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        struct nbd_node *d = node_new(n);
        char less[FAR_WHY];

        if (!d) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        int err = nbd_target_parse(&d->target, rest, strcmp(n->driver->scheme, "nbd+unix") == 0, why);
        if (!err)
                err = prepare(d, why);
        if (!err)
                err = nbd_target_resolve(&d->target, d->set.connect_timeout_ms, why);
        if (!err)
                err = bring_up(&d->link[0], why);
        if (err) {
                nbd_node_free(d);
                return err;
        }
        unsigned at = d->link[0].address;
        d->target.address[0] = d->target.address[at];
        d->target.length[0] = d->target.length[at];
        d->link[0].address = 0;
        d->found = true;
        for (d->nlinks = 1; d->multi && d->nlinks < NBD_LINKS; d->nlinks++) {
                err = bring_up(&d->link[d->nlinks], less);
                if (err == -ESTALE) {           /* no multi-conn in truth, or a server that was started anew just now */
                        memcpy(why, less, FAR_WHY);
                        nbd_node_free(d);
                        return err;
                }
                if (err) {
                        info_("%s: only %u of %u connections: %s", n->url, d->nlinks, NBD_LINKS, less);
                        break;
                }
        }
        n->pages = d->mark_at / PAGE_SIZE;
        n->kept = 1;                    /* the mark's */
        n->alone = !d->multi;           /* another connection might not see what was written over this one */
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

/* All of the export was taken at open. */
static int nbd_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages, struct slab *s, struct far_place *place)
{
        struct nbd_node *d = n->data;

        (void)vm;
        (void)s;
        (void)place;
        atomic_store(&d->leased, true);         /* then the look at lost: nbd_lost() does it the other way round */
        if (atomic_load(&d->lost))
                return -ENOLINK;
        return first <= n->pages && pages <= n->pages - first ? 0 : -ENOSPC;
}

/* libnbd's handles are closed as they are: the connections are the parent's, and stay. */
static bool nbd_forked(struct far_node *n)
{
        struct nbd_node *d = n->data;

        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                nbd_link_close(l);
                l->free = NULL;
                l->done = NULL;
                l->used = 0;
                l->refused = 0;
                l->err = 0;
                for (unsigned k = NBD_DEPTH; k-- > 0; ) {
                        l->slot[k].r = NULL;
                        l->slot[k].next = l->free;
                        l->free = &l->slot[k];
                }
        }
        return false;
}

static void nbd_describe(const struct far_node *n, char *text, size_t size)
{
        const struct nbd_node *d = n->data;
        char a[32];

        snprintf(text, size, "%s: %s, %s, %u connection%s", n->url, size_text(n->pages * PAGE_SIZE, a),
                 d->lease ? "a lease of memnode" : "an export", d->nlinks, d->nlinks == 1 ? "" : "s");
}

/* Frames need no registration: libnbd copies between them and the socket.  A forked child's links are made by poll(); the parent's, or
 * another's of the tree, keep the lease meanwhile, and for its grace time. */
static int nbd_attach(struct far_node *n, char *base, size_t len, char why[FAR_WHY])
{
        struct nbd_node *d = n->data;
        uint64_t now = nbd_clock(d);

        (void)base;
        (void)len;
        (void)why;
        for (unsigned i = 0; i < d->nlinks; i++)
                if (d->link[i].state == LINK_DOWN)
                        d->link[i].trouble = d->link[i].until = now;
        return 0;
}

/* ---- Transfers ---- */

/* libnbd's callback, inside one of its functions.  If the connection broke, the transfer keeps its slot and goes out again. */
static int transferred(void *slot, int *error)
{
        struct nbd_slot *s = slot;
        struct nbd_link *l = s->link;

        if (*error) {
                l->failed += !s->error;
                s->error = *error;
                return 1;
        }
        struct far_request *last = s->r;
        while (last->next)
                last = last->next;
        last->next = l->done;
        l->done = s->r;
        s->r = NULL;
        s->next = l->free;
        l->free = s;
        l->used--;
        return 1;
}

static void transfer(struct nbd_slot *s)
{
        struct nbd_link *l = s->link;
        nbd_completion_callback cb = { .callback = transferred, .user_data = s };
        uint64_t at = (s->r->place->first + s->r->page) * PAGE_SIZE;
        const char *from = s->scattered ? s->gathered : s->r->frame;

        s->error = 0;
        int64_t cookie = s->r->op == FAR_WRITE ? nbd_aio_pwrite(l->h, from, s->pages * PAGE_SIZE, at, cb, 0) :
                                                 nbd_aio_pread(l->h, s->r->frame, PAGE_SIZE, at, cb, 0);
        if (cookie == -1 && s->r && !s->error) {
                s->error = nbd_get_errno() ? nbd_get_errno() : EIO;
                l->failed++;
        }
}

/* How many of r[], writes to neighbouring slots, may go out as one command. */
static unsigned run_length(struct far_request *const *r, unsigned count)
{
        unsigned n = 1;

        while (r[0]->op == FAR_WRITE && n < count && n < NBD_RUN && r[n]->op == FAR_WRITE && r[n]->place == r[0]->place &&
               r[n]->page == r[0]->page + n)
                n++;
        return n;
}

/* Makes s a command for the n requests.  Their frames are claimed until it is over, so what is gathered stays true; without
 * memory for it there is one page a command.  Returns how many it took. */
static unsigned fill_slot(struct nbd_slot *s, struct far_request **r, unsigned n)
{
        bool scattered = false;

        for (unsigned i = 1; i < n; i++)
                scattered |= r[i]->frame != r[0]->frame + i * PAGE_SIZE;
        if (scattered && !s->gathered && !(s->gathered = malloc(NBD_RUN * PAGE_SIZE))) {
                scattered = false;
                n = 1;
        }
        for (unsigned i = 0; i < n; i++) {
                if (scattered)
                        memcpy(s->gathered + i * PAGE_SIZE, r[i]->frame, PAGE_SIZE);
                r[i]->next = i + 1 < n ? r[i + 1] : NULL;
        }
        s->scattered = scattered;
        s->error = 0;
        s->r = r[0];
        s->pages = n;
        return n;
}

static unsigned nbd_post(struct far_node *n, struct far_request **r, unsigned count)
{
        struct nbd_node *d = n->data;
        unsigned taken = 0;

        while (taken < count) {
                unsigned kind = r[taken]->op, last = d->nlinks - 1;
                struct nbd_link *l = &d->link[kind < last ? kind : last];
                struct nbd_slot *s = l->free;
                bool shares = kind != FAR_READ && l == &d->link[0];

                if (!s || (shares && l->used >= NBD_BACKGROUND))
                        break;
                l->free = s->next;
                l->used++;
                s->link = l;
                s->since = d->clock;
                taken += fill_slot(s, r + taken, run_length(r + taken, count - taken));
                if (l->state == LINK_UP)
                        transfer(s);            /* else when it is up again */
        }
        return taken;
}

#define UNASKED 16                      /* polls without an arm() between looks at the sockets */

/* Gives back what is over; returns how many.  Not in the callback: far_done() may post again. */
static unsigned give_back(struct nbd_link *l)
{
        struct far_request *r = l->done, *next;
        unsigned n = 0;

        for (l->done = NULL; r; r = next, n++) {
                next = r->next;
                far_done(r);
        }
        if (n)
                l->trouble = 0;
        return n;
}

/* libnbd takes one answer a call, and finds by itself that there is none. */
static unsigned take_answers(struct nbd_link *l)
{
        unsigned n = 0;

        while (n < POLL_BATCH) {
                unsigned direction = nbd_aio_get_direction(l->h);
                if (direction & LIBNBD_AIO_DIRECTION_WRITE)
                        nbd_aio_notify_write(l->h);
                direction = nbd_aio_get_direction(l->h);
                if (direction & LIBNBD_AIO_DIRECTION_READ)
                        nbd_aio_notify_read(l->h);
                if (!l->done)
                        break;
                n += give_back(l);
                if (!l->used)
                        break;          /* nothing more to come: do not look */
        }
        nbd_link_broken(l);
        return n;
}

static void resume(struct nbd_link *l)
{
        unsigned n = l->used;

        for (unsigned i = 0; i < NBD_DEPTH; i++)
                if (l->slot[i].r)
                        transfer(&l->slot[i]);
        if (!n)
                l->trouble = 0;
        info_("%s: connected again, %u transfers repeated", l->node->far->url, n);
}

/* ---- Trouble ---- */

/* Of those under way, the time of the oldest; 0: there is none. */
static uint64_t oldest(const struct nbd_link *l, int *error)
{
        uint64_t since = 0;

        for (unsigned i = 0; l->used && i < NBD_DEPTH; i++)
                if (l->slot[i].r && (!since || l->slot[i].since < since)) {
                        since = l->slot[i].since;
                        *error = l->slot[i].error;
                }
        return since;
}

/*
 * The node will not come back.  That ends the program if it may have pages there, else it goes on with one node less.  [I] Of lease() and
 * this, each says what it does before it looks at the other, so they cannot both miss the other.
 */
__attribute__((format(printf, 2, 3)))
static void nbd_lost(struct nbd_node *d, const char *fmt, ...)
{
        char why[FAR_WHY];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(why, sizeof(why), fmt, ap);
        va_end(ap);
        atomic_store(&d->lost, true);
        if (atomic_load(&d->leased))
                far_lost(d->far, "%s", why);
        warnx_("%s: %s: nothing was there yet, so the program goes on without it", d->far->url, why);
        for (unsigned i = 0; i < d->nlinks; i++)
                nbd_link_close(&d->link[i]);
}

/* Looks at time-outs, and sends again what the server failed. */
static void judge(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        uint64_t limit = d->set.timeout_ms;
        unsigned long long s = (limit + 999) / 1000;
        int error = 0;

        if (l->state == LINK_DOWN && l->err == -ESTALE)
                return nbd_lost(d, "%s", l->why);
        if (d->lease && l->refused >= NBD_REFUSALS)
                return nbd_lost(d, "its memnode has ended: nothing listens there any more");
        uint64_t since = oldest(l, &error);
        bool late = since && d->clock - since > limit;
        if (l->state != LINK_UP && (late || d->clock - l->trouble > limit)) {
                if (l->state != LINK_DOWN)
                        explain_silence(l, limit, l->why);
                return nbd_lost(d, "the connection broke and could not be made again within %llu s: %s", s, l->why);
        }
        if (error == ESHUTDOWN && d->lease)
                return nbd_lost(d, "its memnode was stopped (it said goodbye)");
        if (late && error)
                return nbd_lost(d, "the server has failed a transfer again and again for %llu s (%s): see its log", s, strerror(error));
        if (late)
                return nbd_lost(d, "%s has not answered for %llu s while %u transfers wait: see whether host and network are up, or raise --timeout",
                         d->target.name, s, l->used);
        if (l->state != LINK_UP || !l->failed)
                return;
        l->failed = 0;
        for (unsigned i = 0; i < NBD_DEPTH; i++)
                if (l->slot[i].r && l->slot[i].error)
                        transfer(&l->slot[i]);
}

static unsigned nbd_poll_node(struct far_node *n)
{
        struct nbd_node *d = n->data;
        unsigned done = 0;
        bool all = d->armed;

        if (atomic_load_explicit(&d->lost, memory_order_relaxed))       /* by this thread */
                return 0;
        nbd_clock(d);
        d->armed = false;
        d->passes = all ? 0 : d->passes + 1;
        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                if (l->state == LINK_UP) {
                        /* Right after sending there is no answer yet: who sleeps for news comes back by arm(), and only who
                         * does not (another node keeps this thread busy) makes us look unasked. */
                        if (l->done || all || (l->used && d->passes % UNASKED == 0))
                                done += take_answers(l);
                        continue;
                }
                nbd_link_step(l);
                if (l->state == LINK_UP)
                        resume(l);
        }
        if (d->clock - d->judged >= NBD_TICK_MS / 2) {
                d->judged = d->clock;
                for (unsigned i = 0; i < d->nlinks && !atomic_load_explicit(&d->lost, memory_order_relaxed); i++)
                        judge(&d->link[i]);
        }
        return done;
}

static int nbd_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms)
{
        struct nbd_node *d = n->data;
        unsigned used = 0;
        int ms = -1;

        if (atomic_load_explicit(&d->lost, memory_order_relaxed))
                return 0;

        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                struct pollfd p;

                if (l->used || l->state != LINK_UP)
                        ms = ms >= 0 && ms < NBD_TICK_MS ? ms : NBD_TICK_MS;
                if (l->state == LINK_DOWN && l->until < d->clock + (uint64_t)ms)
                        ms = l->until > d->clock ? (int)(l->until - d->clock) : 0;
                if (!nbd_link_waits(l, &p) || !p.events)
                        continue;
                if (used < max)
                        fds[used++] = p;
                else
                        ms = ms >= 0 && ms < 1 ? ms : 1;        /* no room to wait for it: look often */
        }
        if (ms >= 0 && (*timeout_ms < 0 || ms < *timeout_ms))
                *timeout_ms = ms;
        d->armed = true;
        return (int)used;
}

#define NBD_DRIVER(name) { \
        .scheme = name, .kind = SLAB_REMOTE, .open = nbd_open, .lease = nbd_lease, .close = nbd_node_close, .describe = nbd_describe, \
        .keep = nbd_keep, .attach = nbd_attach, .forked = nbd_forked, .post = nbd_post, .poll = nbd_poll_node, .arm = nbd_arm, \
}
static const struct far_driver far_nbd = NBD_DRIVER("nbd"), far_nbd_unix = NBD_DRIVER("nbd+unix");

extern const struct far_driver *const far_module[];
const struct far_driver *const far_module[] = { &far_nbd, &far_nbd_unix, NULL };
