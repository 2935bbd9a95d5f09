/*
 * dax:PATH: the far tier is the memory that a file maps: persistent or CXL memory as a DAX device
 * (/dev/dax0.0), a file on hugetlbfs or tmpfs, or a file of a file system on a block device, where
 * pages then go through the host's page cache.
 *
 * The file keeps its size, belongs to this process and its children alone (flock), and is zeroed
 * neither before nor after.  Its content means nothing to others, but may be pages of the program.
 *
 * Whether the old content may be overwritten must be visible or stated: a file of a file system
 * must have no data, or have the mark that vmrun leaves in its last page before it writes to the
 * others; else the user has to ask for it (overwrite=yes).  So a mistyped name destroys no file.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/holder.h"
#include "base/map_unit.h"
#include "base/privfd.h"
#include "common/size.h"
#include "far/window.h"

struct dax_node {
        int fd;
        /* of a file system: blocks must be allocated, and may run out */
        bool file;
        bool direct;                    /* its pages are the memory itself, not a page cache */
        bool hugetlbfs;
        uint64_t mark_at; /* of a file: where its last page begins, which is no slot */
        uint64_t mark_room;             /* bytes of that page */
        bool marked;                    /* the mark was written, by this process or its parent */
};

/* Text, so that a user who looks into the file sees what it is. */
static const char mark[] =
        "vmrun far memory: this file may be overwritten.  See dax: in vmrun(1).\n";

static int why_not_open(int err, const char *path, char why[FAR_WHY])
{
        switch (err) {
        case -ENOENT:
        case -ENOTDIR:
                snprintf(why, FAR_WHY,
                         "there is no such file: make it, as in truncate -s 8G %.64s, or name a "
                         "DAX device",
                         path);
                break;
        case -EISDIR:
                snprintf(why, FAR_WHY, "it is a directory: name a file in it");
                break;
        case -EACCES:
        case -EPERM:
        case -EROFS:
                snprintf(why, FAR_WHY, "it cannot be written: %s: give write access to it",
                         strerror(-err));
                break;
        default:
                snprintf(
                        why, FAR_WHY,
                        "it cannot be opened: %s: see that it is a file or a DAX device that works",
                        strerror(-err));
        }
        return err;
}

/* Its size, and the alignment that mappings must have. */
static int measure(struct dax_node *d, uint64_t *bytes, uint64_t *align, char why[FAR_WHY])
{
        struct stat st;
        struct statfs fs;

        if (fstat(d->fd, &st) != 0 || fstatfs(d->fd, &fs) != 0)
                return why_not_open(-errno, "", why);
        if (S_ISCHR(st.st_mode)) {
                d->direct = true;
                if (dax_device(st.st_rdev, bytes, align))
                        return 0;
                snprintf(why, FAR_WHY,
                         "it is a device, but no DAX device: name one such as /dev/dax0.0, or a "
                         "file");
                return -ENODEV;
        }
        if (!S_ISREG(st.st_mode)) {
                snprintf(why, FAR_WHY, "it is neither a file nor a DAX device: name one of them%s",
                         S_ISBLK(st.st_mode)
                                 ? ", such as a file on a file system on this block device"
                                 : "");
                return -EINVAL;
        }
        d->file = true;
        *bytes = (uint64_t)st.st_size;
        d->hugetlbfs = fs.f_type == HUGETLBFS_MAGIC;
        *align = map_unit(&st, &fs);
        d->direct = d->hugetlbfs || fs.f_type == TMPFS_MAGIC;
        d->mark_room = *align;
        d->mark_at = *bytes >= *align ? *bytes / *align * *align - *align : 0;
        return 0;
}

/* Is there no data in it?  Blocks that were allocated but never written are holes too. */
static bool is_empty(const struct dax_node *d)
{
        struct stat st;

        if (d->hugetlbfs)               /* knows no SEEK_DATA */
                return fstat(d->fd, &st) == 0 && st.st_blocks == 0;
        return lseek(d->fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
}

static bool is_marked(const struct dax_node *d)
{
        char found[sizeof(mark)];

        return pread(d->fd, found, sizeof(found), (off_t)d->mark_at) == sizeof(found) &&
               memcmp(found, mark, sizeof(mark)) == 0;
}

/* Writes the mark, after allocating its blocks: hugetlbfs has no write(2), and a store into a full
 * file system would be SIGBUS. */
static int put_mark(struct dax_node *d)
{
        void *p = mmap(NULL, d->mark_room, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd,
                       (off_t)d->mark_at);

        if (p == MAP_FAILED)
                return -errno;
        memcpy(p, mark, sizeof(mark));
        munmap(p, d->mark_room);
        d->marked = true;
        return 0;
}

/* Maps all of it once: a file that cannot be mapped, or for which huge pages are missing, is found
 * out now and not while the program runs.  For hugetlbfs this also reserves the pages for good. */
static int try_mapping(struct dax_node *d, uint64_t bytes, char why[FAR_WHY])
{
        /* MAP_SYNC works only on file systems on DAX.  It is used only to recognise them, since the
         * content need not survive. */
        void *p =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, d->fd, 0);
        if (p != MAP_FAILED)
                d->direct = true;
        else
                p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
        if (p == MAP_FAILED) {
                int err = -errno;
                snprintf(why, FAR_WHY, "it cannot be mapped: %s%s", strerror(-err),
                         err == -ENOMEM ? ": if it is on hugetlbfs, reserve as many huge pages "
                                          "(/sys/kernel/mm/hugepages); else raise `ulimit -v`"
                                        : ": name a file of another file system");
                return err;
        }
        munmap(p, bytes);
        return 0;
}

static int take(struct far_node *n, struct dax_node *d, const char *path, char why[FAR_WHY])
{
        uint64_t bytes, align;
        char a[32], b[32], who[64];

        int err = measure(d, &bytes, &align, why);
        if (err)
                return err;
        if (flock(d->fd, LOCK_EX | LOCK_NB) != 0) {
                err = -errno;
                if (err == -EWOULDBLOCK)
                        snprintf(why, FAR_WHY, "%s uses it: wait for its end or name another file",
                                 lock_holder(d->fd, who, sizeof(who)));
                else
                        snprintf(why, FAR_WHY,
                                 "it cannot be locked: %s: name a file of another file system",
                                 strerror(-err));
                return err;
        }
        /* Inherited: the program before execve looked. */
        if (d->file && !n->inherited && !n->option->overwrite && !is_empty(d) && !is_marked(d)) {
                snprintf(why, FAR_WHY,
                         "there is data in it that vmrun did not write: name another file, or an "
                         "empty one of some size, as "
                         "truncate makes it; if nobody needs that data, add ?overwrite=yes");
                return -EEXIST;
        }
        if (bytes % PAGE_SIZE) {
                snprintf(why, FAR_WHY,
                         "its size, %llu bytes, is no multiple of 4K: give it one, as in truncate "
                         "-s %%4K %.64s",
                         (unsigned long long)bytes, path);
                return -EINVAL;
        }
        if (bytes < align * (d->file ? 2 : 1)) {        /* a file's last page is the mark's */
                snprintf(why, FAR_WHY,
                         "it is too small with %s: make it larger, a multiple of %s, as in "
                         "truncate -s 8G %.64s",
                         size_text(bytes, a), size_text(align, b), path);
                return -EINVAL;
        }
        if (align % PAGE_SIZE || align / PAGE_SIZE > 1u << SLAB_SHIFT) {
                snprintf(why, FAR_WHY,
                         "its pages of %s are larger than vmrun's slabs: use pages of at most 1G",
                         size_text(align, a));
                return -EINVAL;
        }
        n->granule = align > PAGE_SIZE ? (uint32_t)(align / PAGE_SIZE) : 0;
        n->pages = bytes / align * (align / PAGE_SIZE);
        err = try_mapping(d, n->pages * PAGE_SIZE, why);
        n->kept = d->file ? (uint32_t)(align / PAGE_SIZE) : 0;
        n->pages -= n->kept;
        return err;
}

static int dax_check(const struct node_option *o, const char *rest, char why[FAR_WHY])
{
        (void)o;
        if (*rest)
                return 0;
        snprintf(why, FAR_WHY, "no file is named: give dax:PATH, as in dax:/dev/dax0.0");
        return -EINVAL;
}

static int dax_open(struct far_node *n, const char *rest, char why[FAR_WHY])
{
        struct dax_node *d = calloc(1, sizeof(*d));
        if (!d) {
                snprintf(why, FAR_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        /* O_NONBLOCK: opening something that is not a regular file could block. */
        d->fd = n->inherited ? n->inherited->fd
                             : open(rest, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (d->fd < 0) {
                int err = why_not_open(-errno, rest, why);
                free(d);
                return err;
        }
        int err = take(n, d, rest, why);
        if (err) {
                close(d->fd);
                free(d);
                return err;
        }
        d->fd = privfd_move(d->fd);     /* the lock moves along */
        if (d->fd < 0) {
                err = d->fd;
                snprintf(why, FAR_WHY, "no file descriptor is left for it: raise `ulimit -n`");
                free(d);
                return err;
        }
        n->data = d;
        return 0;
}

/* Allocates the blocks of a sparse file now.  If the file system is full, this node has no more
 * space, and the program continues with the other nodes.  At the first write of a page it would be
 * SIGBUS. */
static int allocate(const struct dax_node *d, uint64_t start, uint64_t bytes)
{
        /* tmpfs gives up for a signal, and starts again the next time */
        for (int tries = 0; tries < 100; tries++) {
                if (fallocate(d->fd, 0, (off_t)start, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
                        return 0;
                if (errno != EINTR)
                        return -errno;
        }
        return -EINTR;
}

static int dax_lease(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages,
                     struct slab *s, struct far_place *place)
{
        (void)place;
        struct dax_node *d = n->data;
        int err = d->file && !d->marked ? allocate(d, d->mark_at, d->mark_room) : 0;

        if (!err && d->file && !d->marked)
                err = put_mark(d);
        if (!err && d->file)
                err = allocate(d, first * PAGE_SIZE, (uint64_t)pages * PAGE_SIZE);
        return err ? err : window_map(vm, d->fd, first, pages, (uint64_t)n->granule * PAGE_SIZE, s);
}

/* Mapped slabs stay, as mem's do. */
static void dax_close(struct far_node *n)
{
        struct dax_node *d = n->data;
        privfd_close(d->fd);
        free(d);
}

static bool dax_keep(const struct far_node *n, struct far_kept_node *k)
{
        k->fd = ((struct dax_node *)n->data)->fd;
        return true;
}

static void dax_describe(const struct far_node *n, char *text, size_t size)
{
        const struct dax_node *d = n->data;
        char a[32], b[32];
        uint64_t granule = n->granule ? n->granule : 1;
        snprintf(text, size, "%s: %s of a %s, pages of %s%s", n->url,
                 size_text(n->pages * PAGE_SIZE, a), d->file ? "file" : "DAX device",
                 size_text(granule * PAGE_SIZE, b), d->direct ? "" : ", through the page cache");
}

const struct far_driver far_dax = {
        .scheme = "dax",
        .kind = SLAB_MEMORY,
        .check = dax_check,
        .open = dax_open,
        .lease = dax_lease,
        .close = dax_close,
        .keep = dax_keep,
        .describe = dax_describe,
};
