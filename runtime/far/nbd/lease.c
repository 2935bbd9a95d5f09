/*
 * See nbd.h: leases of memnode over NBD.  What else than an export's name could say which connection
 * this is?  NBD has no other words, so the names say it: memnode/nbd/nbd.h has their grammar,
 * docs/protocol.md what they are for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "far/nbd/nbd.h"

int nbd_lease_prepare(struct nbd_node *d, char why[FAR_WHY])
{
        char text[FAR_WHY - 116];
        const char *file = d->set.token_file;
        int err = file ? token_read(file, d->given.token, text, sizeof(text)) : 0;

        if (err)
                snprintf(why, FAR_WHY, "token file %.100s: %s", file, text);
        return err;
}

int nbd_lease_draw(char hex[33])
{
        unsigned char secret[16];

        if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
                return -EIO;
        for (size_t i = 0; i < sizeof(secret); i++)
                sprintf(hex + 2 * i, "%02x", secret[i]);
        return 0;
}

int nbd_lease_ask(struct nbd_link *l, char name[NBD_NAME])
{
        struct nbd_node *d = l->node;
        struct nbd_lease *g = &d->given;
        char what[32];

        if (l->cut) {
                snprintf(name, NBD_NAME, "%s", l->cut);
                return 0;
        }
        /* A try whose answer was lost may have made a lease: nobody knows it then, and it ends. */
        if (!g->incarnation && nbd_lease_draw(g->secret) != 0)
                return -EIO;
        snprintf(what, sizeof(what), g->incarnation ? "%016" PRIx64 : "%" PRIu64,
                 g->incarnation ? g->incarnation : d->asked);
        snprintf(name, NBD_NAME, "%s-%s-%s-%" PRIu64 "-%u-%u%s%s",
                 g->incarnation ? "join" : "create", g->secret, what, d->far->member,
                 (unsigned)(l - d->link) + 1, ++l->generation, *g->token ? "-" : "", g->token);
        return 0;
}

int nbd_lease_made(struct nbd_link *l)
{
        char *text = nbd_get_export_description(l->h);
        uint64_t *to = &l->node->given.incarnation;
        bool ok = text && sscanf(text, "incarnation %16" SCNx64, to) == 1 && *to;

        free(text);
        return ok ? 0 : -EPROTO;
}

/* The next name, of as many ranges as fit; returns how many. */
static unsigned cut_name(const struct nbd_lease *g, const struct far_range *dead, unsigned count,
                         char name[NBD_NAME])
{
        int n = snprintf(name, NBD_NAME, "cut-%s-%016" PRIx64 "-", g->secret, g->incarnation);
        size_t at = (size_t)n, room = NBD_NAME - strlen(g->token) - 64;
        unsigned i = 0;

        for (; i < count && at < room; i++)
                at += (size_t)sprintf(name + at, "%s%" PRIu64 ".%" PRIu64, i ? "," : "",
                                      dead[i].first, dead[i].last);
        sprintf(name + at, "%s%s", *g->token ? "-" : "", g->token);
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

        struct nbd_node *e = nbd_node_new(n);
        if (!e) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        e->target = d->target;
        e->found = e->lease = true;
        e->given = d->given;
        e->set.connect_timeout_ms = limit_ms;
        for (unsigned i = 0; i < count && !err; ) {
                i += cut_name(&e->given, dead + i, count - i, name);
                e->link[0].cut = name;
                err = nbd_bring_up(&e->link[0], why);
                nbd_link_close(&e->link[0]);
        }
        e->target.text = NULL;          /* not its own */
        nbd_node_free(e);
        return err;
}
