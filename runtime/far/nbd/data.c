/*
 * Transfers over the links of an NBD node: commands for requests, neighbouring writes as one, and
 * their answers.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include "base/message.h"
#include "far/nbd/nbd.h"

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
        uint64_t at = (s->r->place->first + s->r->page) * PAGE_SIZE;
        const char *from = s->copy ? s->copy : s->r->frame;

        s->error = 0;
        s->sent = true;
        int64_t cookie = s->r->op == FAR_WRITE
                                 ? nbd_aio_pwrite(l->h, from, s->pages * PAGE_SIZE, at, cb, 0)
                                 : nbd_aio_pread(l->h, s->r->frame, PAGE_SIZE, at, cb, 0);
        if (cookie == -1 && s->r && !s->error) {
                s->error = nbd_get_errno() ? nbd_get_errno() : EIO;
                l->failed++;
        }
}

/* How many of r[], writes to neighbouring slots, may go out as one command. */
static unsigned run_length(struct far_request *const *r, unsigned count)
{
        unsigned n = 1;

        while (r[0]->op == FAR_WRITE && n < count && n < NBD_RUN && r[n]->op == FAR_WRITE &&
               r[n]->place == r[0]->place && r[n]->page == r[0]->page + n)
                n++;
        return n;
}

/* Makes s a command for the n requests.  Their frames are claimed until it is over, so the copy
 * stays valid; without room for a copy a command has one page.  Returns how many requests it
 * took. */
static unsigned fill_slot(struct nbd_slot *s, struct far_request **r, unsigned n)
{
        struct nbd_link *l = s->link;
        bool scattered = false;

        for (unsigned i = 1; i < n; i++)
                scattered |= r[i]->frame != r[0]->frame + i * PAGE_SIZE;
        if (scattered && l->spares)
                s->copy = l->spare[--l->spares];
        else if (scattered)
                n = 1;
        for (unsigned i = 0; i < n; i++) {
                if (s->copy)
                        memcpy(s->copy + i * PAGE_SIZE, r[i]->frame, PAGE_SIZE);
                r[i]->next = i + 1 < n ? r[i + 1] : NULL;
        }
        s->error = 0;
        s->sent = false;
        s->r = r[0];
        s->pages = n;
        return n;
}

unsigned nbd_post(struct far_node *n, struct far_request **r, unsigned count)
{
        struct nbd_node *d = n->data;
        unsigned taken = 0;

        for (; atomic_load_explicit(&d->lost, memory_order_relaxed) && taken < count; taken++)
                far_failed(r[taken]);
        while (taken < count) {
                unsigned kind = r[taken]->op, last = d->nlinks - 1;
                struct nbd_link *l = &d->link[kind < last ? kind : last];
                struct nbd_slot *s = l->free;
                bool shares = kind != FAR_READ && l == &d->link[0];

                if (!s || (shares && l->used >= NBD_BACKGROUND))
                        break;
                l->free = s->next;
                l->used++;
                s->since = d->clock;
                taken += fill_slot(s, r + taken, run_length(r + taken, count - taken));
                if (l->state == LINK_UP)
                        nbd_transfer(s);            /* otherwise when the link is up again */
        }
        return taken;
}

/* Gives back requests that are over; returns how many.  Not in the callback, because far_done() may
 * post again. */
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

void nbd_slots_fail(struct nbd_link *l)
{
        give_back(l);
        for (unsigned i = 0; i < NBD_DEPTH; i++)
                for (struct far_request *r = l->slot[i].r, *next; r; r = next) {
                        next = r->next;
                        far_failed(r);
                }
        nbd_slots_reset(l);
}

/* libnbd must not be told of an answer that is not there: it would wait for one, and until one has
 * come send no command that it is given. */
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
                n += give_back(l);
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
        info_("%s: connected again, %u transfers repeated", l->node->far->url, n);
}
