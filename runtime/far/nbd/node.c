/*
 * A node with its links: how it is made, how a thread waits for a link to be up, and how it is
 * freed.
 */
#include <stdio.h>
#include <stdlib.h>
#include "base/privfd.h"
#include "common/clock.h"
#include "far/nbd/data.h"
#include "far/nbd/link.h"
#include "far/nbd/node.h"
#include "far/nbd/settings.h"
#include "far/nbd/target.h"

/* A lease is free again when its server has read NBD_CMD_DISC on all connections, which shows by
 * its closing them. */
static void say_goodbye(struct nbd_node *d)
{
        int64_t end = now_ms() + NBD_GOODBYE_MS, left;

        for (unsigned i = 0; i < NBD_LINKS; i++) {
                if (d->link[i].state == LINK_UP)
                        nbd_aio_disconnect(d->link[i].h, 0);
        }
        for (unsigned i = 0; i < NBD_LINKS; i++)
                while (d->link[i].state == LINK_UP && nbd_aio_is_closed(d->link[i].h) == 0 &&
                       nbd_aio_is_dead(d->link[i].h) == 0 && (left = end - now_ms()) > 0)
                        if (nbd_poll(d->link[i].h, (int)left) < 0)
                                break;
}

void nbd_node_free(struct nbd_node *d)
{
        say_goodbye(d);
        for (unsigned i = 0; i < NBD_LINKS; i++) {
                struct nbd_link *l = &d->link[i];
                nbd_link_close(l);
                free(l->room);
                free(l->page);
        }
        if (d->lock >= 0)
                privfd_close(d->lock);
        nbd_target_free(&d->target);
        free(d->export);
        free(d);
}

struct nbd_node *nbd_node_new(struct far_node *n)
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
                ok &= (l->room = malloc(NBD_COPIES * NBD_RUN * PAGE_SIZE)) != NULL;
                if (ok)
                        nbd_slots_reset(l);
        }
        if (ok)
                return d;
        nbd_node_free(d);
        return NULL;
}

void nbd_explain_silence(const struct nbd_link *l, uint64_t ms, char why[FAR_WHY])
{
        const char *name = l->node->target.name;
        unsigned long long s = (ms + 500) / 1000;

        if (l->state == LINK_CONNECTING)
                snprintf(why, FAR_WHY,
                         "%s does not answer (%llu s): check that the host is up and that its "
                         "firewall lets the port through",
                         name, s);
        else if (l->state == LINK_GREETING)
                snprintf(why, FAR_WHY,
                         "%s takes connections but says nothing (%llu s): check that an NBD server "
                         "listens there and has a free client",
                         name, s);
        else
                snprintf(why, FAR_WHY,
                         "the NBD server at %s does not answer (%llu s): see its log, or raise "
                         "--connect-timeout",
                         name, s);
}

int nbd_bring_up(struct nbd_link *l, char why[FAR_WHY])
{
        struct nbd_node *d = l->node;
        uint64_t begin = nbd_clock(d);
        /* memnode zeroes a lease before it answers. */
        uint64_t zeroing = d->lease && !d->given.incarnation ? d->asked >> 20 : 0;

        for (l->until = begin; ; nbd_clock(d)) {
                struct pollfd p;
                uint64_t passed = d->clock - begin,
                         limit = d->set.connect_timeout_ms +
                                 (l->state >= LINK_CHOOSING ? zeroing : 0);

                if (l->cut && nbd_is_down(d->far)) {
                        nbd_link_close(l);
                        return nbd_say_down(why);
                }
                nbd_link_step(l);
                if (l->state == LINK_UP)
                        break;
                bool again = l->err == -EAGAIN || l->until <= d->clock;
                if (l->state == LINK_DOWN && (!again || passed >= limit)) {
                        memcpy(why, l->why, FAR_WHY);
                        return l->err;
                }
                if (passed >= limit) {
                        nbd_explain_silence(l, passed, why);
                        nbd_link_close(l);
                        return -ETIMEDOUT;
                }
                int ms = limit - passed < 50 ? (int)(limit - passed) : 50;
                if (l->tls.runs)        /* no descriptor tells its end */
                        ms = NBD_LOOK_MS;
                poll(&p, nbd_link_waits(l, &p), ms);
        }
        l->trouble = 0;
        return 0;
}
