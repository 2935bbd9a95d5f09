/*
 * memnode's status, behind the last byte of a lease (include/nodeproto.h), and vmrun's answer when
 * memnode is draining.
 */
#include <string.h>
#include "common/clock.h"
#include "far/nbd/link.h"
#include "far/nbd/status.h"
#include "nodeproto.h"

#define LOOK_MS 500                     /* between two looks: so late a drain may be noticed */

/* libnbd's callbacks, inside one of its functions. */
static int looked(void *node, int *error)
{
        struct nbd_status *s = &((struct nbd_node *)node)->status;

        s->under_way--;
        if (!*error)
                s->keeps = s->page[1] == NODE_KEEPS;
        if (!*error && s->page[0] == NODE_DRAINS)
                far_asked(((struct nbd_node *)node)->far);
        return 1;
}
static int told(void *node, int *error)
{
        (void)error;                    /* it is told again after the next look */
        ((struct nbd_node *)node)->status.under_way--;
        return 1;
}

/* The connection is up, and goes to a memnode that has a status. */
static bool has_status(const struct nbd_node *d)
{
        const struct nbd_link *l = &d->link[0];

        return d->lease && l->state == LINK_UP &&
               nbd_get_size(l->h) >= (int64_t)(d->bytes + NODE_STATUS_BYTES);
}

static void say_stays(struct nbd_node *d)
{
        static const char nothing[NODE_STATUS_BYTES];
        nbd_completion_callback cb = { .callback = told, .user_data = d };

        d->status.under_way++;
        if (nbd_aio_pwrite(d->link[0].h, nothing, sizeof(nothing), d->bytes, cb, 0) == -1)
                d->status.under_way = 0;        /* the link is found broken */
}

void nbd_status_look(struct nbd_node *d)
{
        struct nbd_status *s = &d->status;
        nbd_completion_callback cb = { .callback = looked, .user_data = d };
        int64_t now = now_ms();

        if (s->under_way || now < s->next || !has_status(d) || is_set(&d->far->is_drained))
                return;
        s->next = now + LOOK_MS;
        s->under_way++;
        if (nbd_aio_pread(d->link[0].h, s->page, sizeof(s->page), d->bytes, cb, 0) == -1)
                s->under_way = 0;
        else if (s->stays)
                say_stays(d);
}

void nbd_status_arm(const struct nbd_node *d, int *timeout_ms)
{
        int64_t left = d->status.next - now_ms();

        if (d->status.under_way || !has_status(d) || is_set(&d->far->is_drained))
                return;
        if (*timeout_ms < 0 || left < *timeout_ms)
                *timeout_ms = left > 0 ? (int)left : 0;
}

/* For memnode NBD_CMD_DISC on all links says that this process has moved.  A socket that is closed
 * with an answer unread in it would reset the connection, and the command might be lost. */
bool nbd_answer(struct far_node *n, bool moved)
{
        struct nbd_node *d = n->data;

        if (!moved && !has_status(d))
                return false;
        if (!moved) {
                d->status.stays = true;
                say_stays(d);
                return true;
        }
        if (d->status.under_way)
                return false;
        atomic_store(&d->lost, true);
        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                if (l->state == LINK_UP)
                        nbd_aio_disconnect(l->h, 0);
                nbd_link_close(l);
        }
        return true;
}
