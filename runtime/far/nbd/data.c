/*
 * Transfers over the links of an NBD node: commands for requests, neighbouring writes or prefetches
 * as one, and their answers.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include "base/message.h"
#include "far/nbd/data.h"
#include "far/nbd/link.h"

#define POLL_BATCH 16                   /* answers taken from a link before the next has its turn */

void nbd_slots_reset(struct nbd_link *l)
{
        l->free = NULL;
        l->done = NULL;
        l->used = l->failed = l->spares = 0;
        while (l->spares < NBD_COPIES) {
                l->spare[l->spares] = l->room + l->spares * NBD_RUN * PAGE_SIZE;
                l->spares++;
        }
        for (unsigned k = NBD_DEPTH; k-- > 0; ) {
                l->slot[k].link = l;
                l->slot[k].r = NULL;
                l->slot[k].copy = NULL;
                l->slot[k].next = l->free;
                l->free = &l->slot[k];
        }
}

/* Copies pages from a slot's copy into their frames. */
static void hand_out(const struct nbd_slot *s)
{
        const char *from = s->copy;

        for (struct far_request *r = s->r; r; r = r->next, from += PAGE_SIZE)
                memcpy(r->frame, from, PAGE_SIZE);
}

/* libnbd's callback, inside one of its functions.  If the connection broke, the transfer keeps its
 * slot and is sent again. */
static int transferred(void *slot, int *error)
{
        struct nbd_slot *s = slot;
        struct nbd_link *l = s->link;

        if (*error) {
                l->failed += !s->error;
                s->error = *error;
                return 1;
        }
        if (s->copy && s->r->op != FAR_WRITE)
                hand_out(s);
        struct far_request *last = s->r;
        while (last->next)
                last = last->next;
        last->next = l->done;
        l->done = s->r;
        s->r = NULL;
        if (s->copy)
                l->spare[l->spares++] = s->copy;
        s->copy = NULL;
        s->next = l->free;
        l->free = s;
        l->used--;
        return 1;
}

void nbd_transfer(struct nbd_slot *s)
{
        struct nbd_link *l = s->link;
        nbd_completion_callback cb = { .callback = transferred, .user_data = s };
        uint64_t at = (s->r->place->first + s->r->page) * PAGE_SIZE + s->r->offset;
        char *memory = s->copy ? s->copy : s->r->frame + s->r->offset;
        size_t len = s->r->len < PAGE_SIZE ? s->r->len : s->pages * PAGE_SIZE;

        s->error = 0;
        s->sent = true;
        int64_t cookie = s->r->op == FAR_WRITE
                                 ? nbd_aio_pwrite(l->h, memory, len, at, cb, 0)
                                 : nbd_aio_pread(l->h, memory, len, at, cb, 0);
        if (cookie == -1 && s->r && !s->error) {
                s->error = nbd_get_errno() ? nbd_get_errno() : EIO;
                l->failed++;
        }
}

/* How many of r[], of one kind and for neighbouring slots, may go out as one command to a server
 * that takes `limit` pages in one.  Puts them in the order of their slots: pages that a stream
 * reads forward were often written backward. */
static unsigned gather_run(struct far_request **r, unsigned count, unsigned limit)
{
        static const unsigned most[] = {
                [FAR_READ] = 1, [FAR_PREFETCH] = NBD_AHEAD, [FAR_WRITE] = NBD_RUN
        };
        enum far_op op = r[0]->op;
        bool down = count > 1 && r[1]->page + 1 == r[0]->page;
        unsigned n = 1;

        limit = most[op] < limit ? most[op] : limit;
        while (n < count && n < limit && r[n]->op == op && r[n]->place == r[0]->place &&
               r[n]->page == (down ? r[0]->page - n : r[0]->page + n))
                n++;
        for (unsigned i = 0; down && i < n / 2; i++) {
                struct far_request *other = r[i];
                r[i] = r[n - 1 - i];
                r[n - 1 - i] = other;
        }
        return n;
}

static bool is_scattered(struct far_request *const *r, unsigned n)
{
        for (unsigned i = 1; i < n; i++)
                if (r[i]->frame != r[0]->frame + i * PAGE_SIZE)
                        return true;
        return false;
}

/* Makes s a command for the n requests.  Their frames are claimed until it is over, so a copy of
 * pages to be written stays valid. */
static void fill_slot(struct nbd_slot *s, struct far_request **r, unsigned n, char *copy)
{
        for (unsigned i = 0; i < n; i++) {
                if (copy && r[0]->op == FAR_WRITE)
                        memcpy(copy + i * PAGE_SIZE, r[i]->frame, PAGE_SIZE);
                r[i]->next = i + 1 < n ? r[i + 1] : NULL;
        }
        s->copy = copy;
        s->error = 0;
        s->sent = false;
        s->r = r[0];
        s->pages = n;
}

unsigned nbd_post(struct far_node *node, struct far_request **r, unsigned count)
{
        struct nbd_node *d = node->data;
        unsigned taken = 0;

        for (; atomic_load_explicit(&d->lost, memory_order_relaxed) && taken < count; taken++)
                far_failed(r[taken]);
        if (nbd_is_down(node))
                return taken;
        while (taken < count) {
                unsigned kind = r[taken]->op, last = d->nlinks - 1;
                struct nbd_link *l = &d->link[kind < last ? kind : last];
                struct nbd_slot *s = l->free;
                bool shares = kind != FAR_READ && l == &d->link[0];
                unsigned n = gather_run(r + taken, count - taken, d->most);
                bool scattered = is_scattered(r + taken, n);

                /* The slot or the room for a copy that is missing comes back when a command is
                 * over: the I/O thread posts again then. */
                if (!s || (shares && l->used >= NBD_BACKGROUND) || (scattered && !l->spares))
                        break;
                l->free = s->next;
                if (!l->used++)
                        l->heard = d->clock;
                s->since = d->clock;
                fill_slot(s, r + taken, n, scattered ? l->spare[--l->spares] : NULL);
                taken += n;
                if (l->state == LINK_UP)
                        nbd_transfer(s);            /* otherwise when the link is up again */
        }
        return taken;
}

/* Not in the callback, because far_done() may post again. */
unsigned nbd_give_back(struct nbd_link *l)
{
        struct far_request *r = l->done, *next;
        unsigned n = 0;

        for (l->done = NULL; r; r = next, n++) {
                next = r->next;
                far_done(r);
        }
        if (n) {
                l->trouble = 0;
                l->heard = l->node->clock;
        }
        return n;
}

void nbd_slots_fail(struct nbd_link *l)
{
        nbd_give_back(l);
        for (unsigned i = 0; i < NBD_DEPTH; i++)
                for (struct far_request *r = l->slot[i].r, *next; r; r = next) {
                        next = r->next;
                        far_failed(r);
                }
        nbd_slots_reset(l);
}

/* libnbd must not be told of an answer that is not there: it would wait for an answer, and send no
 * command until one has come. */
static bool has_answer(const struct nbd_link *l)
{
        struct pollfd p = { .fd = l->fd, .events = POLLIN };

        return poll(&p, 1, 0) > 0;
}

/* libnbd reads one answer a call. */
unsigned nbd_take_answers(struct nbd_link *l)
{
        unsigned n = 0;

        while (n < POLL_BATCH) {
                unsigned direction = nbd_aio_get_direction(l->h);
                if (direction & LIBNBD_AIO_DIRECTION_WRITE)
                        nbd_aio_notify_write(l->h);
                direction = nbd_aio_get_direction(l->h);
                if (direction & LIBNBD_AIO_DIRECTION_READ && has_answer(l))
                        nbd_aio_notify_read(l->h);
                if (!l->done)
                        break;
                n += nbd_give_back(l);
                if (!l->used)
                        break;          /* nothing more can arrive: do not read */
        }
        nbd_link_broken(l);
        return n;
}

void nbd_resume(struct nbd_link *l)
{
        unsigned n = l->used;

        for (unsigned i = 0; i < NBD_DEPTH; i++) {
                struct nbd_slot *s = &l->slot[i];
                for (struct far_request *r = s->r; r; r = r->next)
                        r->repeated |= s->sent;
                if (s->r)
                        nbd_transfer(s);
        }
        if (!n)
                l->trouble = 0;
        if (!l->node->far->hands_back)
                info_("%s: connected again, %u transfers repeated", l->node->far->url, n);
}
