/*
 * Leases of memnode over NBD.  NBD has no words for the lease and the connection that vmrun means,
 * so the export's name says both: memnode/nbd/name.h has the grammar of these names,
 * docs/protocol.md their use.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "far/nbd/lease.h"

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
        /* A try whose answer was lost may have made a lease: no process joins it, and it ends. */
        if (!g->incarnation && nbd_lease_draw(g->secret) != 0)
                return -EIO;
        snprintf(what, sizeof(what), g->incarnation ? "%016" PRIx64 : "%" PRIu64,
                 g->incarnation ? g->incarnation : d->asked);
        snprintf(name, NBD_NAME, "%s-%s-%s-%" PRIu64 "-%u-%u",
                 g->incarnation ? "join" : "create", g->secret, what, d->far->member,
                 (unsigned)(l - d->link) + 1, ++l->generation);
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
