/*
 * Whether an export can be used, by what its server says of it.
 */
#include <errno.h>
#include <stdio.h>
#include "common/size.h"
#include "far/nbd/export.h"
#include "far/nbd/lease.h"

/* Parts of pages are read in blocks that the server takes, but no smaller ones than disks have. */
#define BLOCK 512
static uint32_t unit_of(int64_t least)
{
        if (least <= BLOCK)
                return BLOCK;
        return PAGE_SIZE % least ? 0 : (uint32_t)least;
}

/* How small and how large may a command be?  The first connection sets it; at other connections the
 * largest may not be less. */
static int commands_fit(struct nbd_link *l, char why[FAR_WHY])
{
        struct nbd_node *d = l->node;
        int64_t least = nbd_get_block_size(l->h, LIBNBD_SIZE_MINIMUM),
                bytes = nbd_get_block_size(l->h, LIBNBD_SIZE_MAXIMUM);
        char a[32], b[32];
        /* 0: not said, which is 32 MiB */
        unsigned most = bytes > 0 && bytes < NBD_RUN * PAGE_SIZE ? (unsigned)(bytes / PAGE_SIZE)
                                                                 : NBD_RUN;

        d->far->unit = unit_of(least);
        if (least > PAGE_SIZE) {
                snprintf(why, FAR_WHY,
                         "export '%.64s' cannot transfer blocks of 4K: let the server serve it "
                         "with smaller blocks",
                         d->export);
                return -ENOTSUP;
        }
        if (!most) {
                snprintf(why, FAR_WHY,
                         "export '%.64s' takes %lld bytes at a time, and a page is 4K: let the "
                         "server allow larger blocks (its maximum)",
                         d->export, (long long)bytes);
                return -ENOTSUP;
        }
        if (d->most > most) {
                snprintf(why, FAR_WHY,
                         "%s now takes %s at a time, and took %s before: let the server allow as "
                         "much again (its maximum)",
                         d->target.name, size_text(most * PAGE_SIZE, a),
                         size_text(d->most * PAGE_SIZE, b));
                return -ENOTSUP;
        }
        if (!d->most)
                d->most = most;
        return 0;
}

static int lease_fits(struct nbd_link *l, int64_t size, char why[FAR_WHY])
{
        struct nbd_node *d = l->node;

        if (d->given.incarnation)
                return 0;
        d->bytes = ((uint64_t)size < d->asked ? (uint64_t)size : d->asked) / PAGE_SIZE * PAGE_SIZE;
        d->multi = nbd_can_multi_conn(l->h) == 1;
        if (nbd_lease_made(l) == 0)
                return 0;
        snprintf(why, FAR_WHY, "its memnode says no incarnation of the lease: install the same "
                 "version on both");
        return -EPROTO;
}

int nbd_export_fits(struct nbd_link *l, char why[FAR_WHY])
{
        struct nbd_node *d = l->node;
        int64_t size = nbd_get_size(l->h);
        char a[32], b[32];

        if (nbd_is_read_only(l->h) != 0) {
                snprintf(why, FAR_WHY,
                         "export '%.64s' is read-only: let the server serve it for writing",
                         d->export);
                return -EROFS;
        }
        int err = commands_fit(l, why);
        if (err || d->lease)
                return err ? err : lease_fits(l, size, why);
        if (size < 2 * PAGE_SIZE) {
                snprintf(why, FAR_WHY,
                         "export '%.64s' is too small (%lld bytes): vmrun needs at least 8K",
                         d->export, (long long)size);
                return -ENOSPC;
        }
        if (d->marked && (uint64_t)size < d->bytes + PAGE_SIZE) {
                snprintf(why, FAR_WHY,
                         "the export has shrunk from %s to %s: what was behind that is lost",
                         size_text(d->bytes + PAGE_SIZE, a), size_text((uint64_t)size, b));
                return -ESTALE;
        }
        if (!d->marked) {
                d->bytes = (uint64_t)size / PAGE_SIZE * PAGE_SIZE - PAGE_SIZE;
                d->multi = nbd_can_multi_conn(l->h) == 1;
        }
        return 0;
}
