/*
 * How dead processes of the tree are cut off from a lease.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/clock.h"
#include "far/nbd/lease_cut.h"
#include "far/nbd/link.h"
#include "far/nbd/node.h"

/* The next name, of as many ranges as fit; returns how many. */
static unsigned cut_name(const struct nbd_lease *g, const struct far_range *dead, unsigned count,
                         char name[NBD_NAME])
{
        int n = snprintf(name, NBD_NAME, "cut-%s-%016" PRIx64 "-", g->secret, g->incarnation);
        size_t at = (size_t)n, room = NBD_NAME - 64;
        unsigned i = 0;

        for (; i < count && at < room; i++)
                at += (size_t)sprintf(name + at, "%s%" PRIu64 ".%" PRIu64, i ? "," : "",
                                      dead[i].first, dead[i].last);
        return i;
}

/* On a connection of its own, by a node of its own: any thread may be in here while the I/O thread
 * uses the other links. */
int nbd_lease_cut(struct far_node *n, const struct far_range *dead, unsigned count,
                  unsigned limit_ms, char why[FAR_WHY])
{
        const struct nbd_node *d = n->data;
        char name[NBD_NAME];
        int err = 0;

        if (nbd_is_down(n))
                return nbd_say_down(why);
        struct nbd_node *e = nbd_node_new(n);
        if (!e) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        e->target = d->target;
        e->found = e->lease = true;
        e->given = d->given;
        int64_t end = now_ms() + limit_ms;
        for (unsigned i = 0; i < count && !err; ) {
                int64_t left = end - now_ms();
                e->set.connect_timeout_ms = left > 0 ? (unsigned)left : 0;
                i += cut_name(&e->given, dead + i, count - i, name);
                e->link[0].cut = name;
                err = nbd_bring_up(&e->link[0], why);
                nbd_link_close(&e->link[0]);
        }
        e->target.text = NULL;          /* not its own */
        nbd_node_free(e);
        return err;
}
