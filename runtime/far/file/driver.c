/*
 * file:PATH: far memory in a regular file or on a block device of this host, by io_uring past the
 * page cache.
 *
 * Blocks of a file are allocated slab by slab, so that no write can fail later for want of space.
 * They are given back when the process tree ends, but for those that the file had before.  A file
 * that a killed tree leaves behind is marked as vmrun's, and the next run takes it over.
 *
 * Processes of the tree share the open file, each with a ring of its own.  The kernel cannot be
 * told to drop writes of a process that was killed, so slots of writes that are under way at its
 * death are retired, as on foreign NBD servers (docs/protocol.md).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/privfd.h"
#include "common/size.h"
#include "far/file/disk.h"
#include "far/sum.h"

struct kept {
        uint64_t bytes;
        bool device, sparse, created, marked;
};

static bool disk_keep(const struct far_node *n, struct far_kept_node *k)
{
        const struct disk_node *d = n->data;

        *(struct kept *)k->data = (struct kept){
                .bytes = (n->pages + n->kept) * PAGE_SIZE,
                .device = d->device,
                .sparse = d->sparse,
                .created = d->created,
                .marked = d->marked,
        };
        k->fd = d->fd;
        return true;
}

static void take_over(struct disk_node *d, uint64_t *bytes)
{
        const struct far_kept_node *k = d->far->inherited;
        const struct kept *from = (const struct kept *)k->data;

        d->fd = k->fd;
        d->device = from->device;
        d->sparse = from->sparse;
        d->created = from->created;
        d->marked = from->marked;
        *bytes = from->bytes;
}

static int disk_check(const struct node_option *o, const char *rest, char why[FAR_WHY])
{
        (void)o;
        if (*rest)
                return 0;
        snprintf(why, FAR_WHY, "no file is named: give file:PATH, as in file:/var/lib/far?size=8G");
        return -EINVAL;
}

static int disk_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        uint64_t bytes;
        int err = 0;

        struct disk_node *d = calloc(1, sizeof(*d));
        if (!d) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        d->far = n;
        disk_reset(d);
        if (n->inherited)
                take_over(d, &bytes);
        else if ((err = disk_ring_try(why)) == 0)
                err = disk_claim(d, rest, &bytes, why);
        if (err) {
                free(d);
                return err;
        }
        n->kept = 1;                    /* the first page */
        n->pages = bytes / PAGE_SIZE - n->kept;
        n->data = d;
        return 0;
}

/* Without the ring, nothing is under way any more, or its end does not matter. */
static void disk_close(struct far_node *n)
{
        struct disk_node *d = n->data;

        disk_ring_drop(d);
        disk_room_drop(d);
        disk_give_back(d, strchr(n->url, ':') + 1);
        privfd_close(d->fd);
        free(d);
        n->data = NULL;
}

/* A file system without fallocate() may be full later: then writes fail, see data.c. */
static int allocate(const struct disk_node *d, uint64_t start, uint64_t bytes)
{
        struct rlimit r;

        if (d->device)
                return 0;
        /* Beyond the limit it would be a signal, and writes would fail. */
        if (getrlimit(RLIMIT_FSIZE, &r) == 0 && r.rlim_cur < start + bytes)
                return -EFBIG;
        for (int tries = 0; tries < 100; tries++) {
                if (fallocate(d->fd, 0, (off_t)start, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
                        return 0;
                if (errno != EINTR)
                        return -errno;
        }
        return -EINTR;
}

static int disk_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                      struct slab *s, struct far_place *place)
{
        struct disk_node *d = n->data;

        (void)vm;
        (void)s;
        (void)place;
        if (disk_is_down(n))
                return -ENOLINK;        /* the file system may wait for the disk */
        if (first > n->pages || pages > n->pages - first)
                return -ENOSPC;
        int err = allocate(d, 0, PAGE_SIZE);
        if (!err && !d->marked)
                err = disk_mark(d);
        return err ? err : allocate(d, (first + 1) * PAGE_SIZE, (uint64_t)pages * PAGE_SIZE);
}

/* Its blocks are allocated. */
static int disk_use(struct far_node *n, struct far_place *place, uint32_t pages)
{
        (void)place;
        (void)pages;
        ((struct disk_node *)n->data)->marked = true;
        return 0;
}

/* The ring is the parent's: here only this process's descriptor of it is closed.  The room is not
 * here. */
static bool disk_forked(struct far_node *n)
{
        struct disk_node *d = n->data;

        disk_ring_drop(d);
        disk_reset(d);
        return false;
}

static int disk_attach(struct far_node *n, char *base, size_t len, char why[FAR_WHY])
{
        struct disk_node *d = n->data;

        (void)base;
        (void)len;
        int err = d->ring_made ? 0 : disk_ring_make(d, why);

        if (err || !n->hands_back)
                return err;
        err = d->room ? 0 : disk_room_make(d);
        if (err)
                snprintf(why, FAR_WHY, "no memory for pages on their way (%d KiB): free some on "
                         "this host, or raise `ulimit -v`", DISK_ROOM * PAGE_SIZE / 1024);
        else
                far_up(n);
        return err;
}

static void disk_describe(const struct far_node *n, char *text, size_t size)
{
        const struct disk_node *d = n->data;
        char a[32];

        snprintf(text, size, "%s: %s of a %s, by io_uring past the page cache", n->url,
                 size_text(n->pages * PAGE_SIZE, a),
                 d->device   ? "block device"
                 : d->sparse ? "file, allocated as it is used"
                             : "file");
}

static const struct far_driver far_disk = {
        .scheme = "file",
        .kind = SLAB_REMOTE,
        .check = disk_check,
        .open = disk_open,
        .lease = disk_lease,
        .use = disk_use,
        .close = disk_close,
        .keep = disk_keep,
        .describe = disk_describe,
        .attach = disk_attach,
        .post = disk_post,
        .poll = disk_poll,
        .arm = disk_arm,
        .forked = disk_forked,
        .sum = far_sum,
        .own_thread = true,
        .local = true,
};

extern const struct far_driver *const far_module[];
const struct far_driver *const far_module[] = { &far_disk, NULL };
