/*
 * See disk.h: how a file or a block device becomes this process tree's alone, and whether its
 * content may be overwritten.
 *
 * Old content may be overwritten if that is visible or stated: a file must have no data, or begin
 * with the page that vmrun writes there before it writes to the others; a device must begin with
 * that page.  Else the user has to ask for it (overwrite=yes).  So a mistyped name destroys
 * nothing.  Some data lies behind the first page: a member of an md RAID 1.2 or of a ZFS pool keeps
 * that page as it was.  So data that libblkid finds anywhere is visible, and not vmrun's.
 *
 * The lock (flock, and for a device the kernel's exclusive use of it) belongs to the open file,
 * which children and executed programs inherit.  A transfer that is under way holds the open file
 * too, beyond the end of its process: so a process that gets the lock after a tree was killed meets
 * none of that tree's writes, but may have to wait for them.
 */
#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/holder.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "common/size.h"
#include "far/file/disk.h"

/* how long the last writes of a tree that was killed are waited for */
#define LAST_WRITES_MS 1000
#define WHAT 32                         /* bytes for libblkid's name of the data that it finds */
/* Answers of blkid_do_safeprobe(), which has no names for them; 1: nothing, -1: it failed. */
enum { FOUND = 0, FOUND_MORE = -2 };

/* Text, so that a user who looks into it sees what it is. */
static const char mark[] =
        "vmrun far memory: this may be overwritten.  See file: in vmrun(1).\n",
        was_sparse[] = "Blocks are given back.\n", was_full[] = "Blocks are kept.\n";

static int why_not_open(int err, const char *path, char why[FAR_WHY])
{
        switch (err) {
        case -ENOENT:
                snprintf(why, FAR_WHY,
                         "there is no such file: say how large one to make, as in ?size=8G, or "
                         "name a block device");
                break;
        case -ENOTDIR:
                snprintf(why, FAR_WHY, "a part of its path is no directory: name a file, or a "
                         "block device");
                break;
        case -EISDIR:
                snprintf(why, FAR_WHY, "it is a directory: name a file in it");
                break;
        case -EACCES:
        case -EPERM:
        case -EROFS:
        case -ETXTBSY:
                snprintf(why, FAR_WHY, "it cannot be written: %s: give write access to it",
                         strerror(-err));
                break;
        case -EBUSY:
                snprintf(why, FAR_WHY,
                         "it is in use (mounted, for swap, by another device, or by another "
                         "vmrun: see lsblk): name another device than %.64s", path);
                break;
        default:
                snprintf(why, FAR_WHY, "it cannot be opened: %s: see that it is a file or a block "
                         "device that works", strerror(-err));
        }
        return err;
}

/* Waits a moment for the last writes of a tree that was killed.  False: it is `until`. */
static bool wait_a_little(int64_t until)
{
        if (now_ms() >= until)
                return false;
        usleep(10000);
        return true;
}

/* O_EXCL: nothing in the kernel uses the device, nor another vmrun. */
static int open_device(const char *path, int flags, int64_t until)
{
        int fd;

        do
                fd = PRIVFD_NEW(open(path, flags | O_EXCL));
        while (fd == -EBUSY && wait_a_little(until));
        return fd;
}

static int open_it(struct disk_node *d, const char *path, int64_t until, char why[FAR_WHY])
{
        const int flags = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
        struct stat st;

        if (stat(path, &st) == 0) {
                d->device = S_ISBLK(st.st_mode);
                d->fd = d->device ? open_device(path, flags, until) : PRIVFD_NEW(open(path, flags));
        } else if (errno == ENOENT && d->far->option->size) {
                d->fd = PRIVFD_NEW(open(path, flags | O_CREAT | O_EXCL, 0600));
                d->created = d->fd >= 0;
                if (d->fd == -ENOENT) {
                        snprintf(why, FAR_WHY, "the folder that it is to be made in does not exist"
                                 ": make it, or give another path");
                        return -ENOENT;
                }
        } else {
                d->fd = -errno;
        }
        return d->fd >= 0 ? 0 : why_not_open(d->fd, path, why);
}

static int lock(const struct disk_node *d, int64_t until, char why[FAR_WHY])
{
        char who[64];
        int err;

        do
                err = flock(d->fd, LOCK_EX | LOCK_NB) == 0 ? 0 : -errno;
        while (err == -EWOULDBLOCK && wait_a_little(until));
        if (!err)
                return 0;
        if (err == -EWOULDBLOCK)
                snprintf(why, FAR_WHY, "%s uses it: wait for its end or name another file",
                         lock_holder(d->fd, who, sizeof(who)));
        else
                snprintf(why, FAR_WHY, "it cannot be locked: %s: name a file of another file "
                         "system", strerror(-err));
        return err;
}

/* Without O_NONBLOCK from here on: the kernel would refuse transfers that have to wait. */
static int go_direct(const struct disk_node *d, char why[FAR_WHY])
{
        if (fcntl(d->fd, F_SETFL, O_DIRECT) == 0)
                return 0;
        int err = -errno;
        snprintf(why, FAR_WHY, "its file system has no direct I/O (O_DIRECT): %s: name a file on a "
                 "disk, a block device, or give dax:PATH", strerror(-err));
        return err;
}

/* The content of the file or device. */
struct content {
        uint64_t bytes;                 /* 0: an empty file */
        uint64_t blocks;                /* bytes that are allocated */
        bool empty;                     /* no data is in it */
        char found[WHAT];               /* of others, by libblkid's name; "": nothing */
};

static int measure(struct disk_node *d, struct content *c /* OUT */, char why[FAR_WHY])
{
        struct stat st;

        if (fstat(d->fd, &st) != 0)
                return why_not_open(-errno, "", why);
        d->device = S_ISBLK(st.st_mode);
        if (d->device && ioctl(d->fd, BLKGETSIZE64, &c->bytes) == 0)
                return 0;
        if (S_ISREG(st.st_mode)) {
                c->bytes = (uint64_t)st.st_size;
                c->blocks = (uint64_t)st.st_blocks * 512;
                return 0;
        }
        snprintf(why, FAR_WHY, "it is neither a file nor a block device: name one of them");
        return -EINVAL;
}

/* Reads the first page.  False: it is not vmrun's.  Also finds out whether pages can be read. */
static int read_mark(struct disk_node *d, bool *ours, char why[FAR_WHY])
{
        char *page = aligned_alloc(PAGE_SIZE, PAGE_SIZE);
        ssize_t n = page ? pread(d->fd, page, PAGE_SIZE, 0) : -1;
        int err = page ? n < 0 ? -errno : 0 : -ENOMEM;

        *ours = n == PAGE_SIZE && memcmp(page, mark, sizeof(mark) - 1) == 0;
        d->marked = *ours;
        if (*ours)
                d->sparse = !d->device &&
                            strncmp(page + sizeof(mark) - 1, was_sparse,
                                    sizeof(was_sparse) - 1) == 0;
        free(page);
        if (err == -EINVAL)
                snprintf(why, FAR_WHY, "it cannot be read in pages past the page cache (O_DIRECT): "
                         "name a file on another file system, or a disk with smaller sectors");
        else if (err)
                snprintf(why, FAR_WHY, "it cannot be read: %s: see the kernel's log (dmesg)",
                         strerror(-err));
        return err;
}

/* Is there data, and whose: a file system's, a RAID's, partitions'?  Before go_direct(): libblkid
 * reads less than a page.  A file without data is left alone: pages that are read of it would count
 * as data from then on, as long as the page cache has them. */
static int look_for_others(const struct disk_node *d, struct content *c, char why[FAR_WHY])
{
        /* Blocks that were allocated but never written are holes too. */
        c->empty = !d->device && lseek(d->fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
        if (c->empty || d->far->option->overwrite)
                return 0;
        bool held = privfd_making();    /* it may open the whole disk of a partition */
        blkid_probe p = blkid_new_probe();
        const char *type = "data of more than one kind";
        int found = -1;

        if (p && blkid_probe_set_device(p, d->fd, 0, 0) == 0 &&
            blkid_probe_enable_partitions(p, 1) == 0) {
                found = blkid_do_safeprobe(p);
                if (found == FOUND && blkid_probe_lookup_value(p, "TYPE", &type, NULL) != 0)
                        blkid_probe_lookup_value(p, "PTTYPE", &type, NULL);
        }
        if (found == FOUND || found == FOUND_MORE)
                snprintf(c->found, WHAT, "%s", type);
        blkid_free_probe(p);
        privfd_made(held);
        if (found != -1)
                return 0;
        snprintf(why, FAR_WHY, "it cannot be searched for data of others: see the kernel's log "
                 "(dmesg), or free some memory on this host");
        return -EIO;
}

static int may_overwrite(struct disk_node *d, const struct content *c, char why[FAR_WHY])
{
        bool ours;
        int err = read_mark(d, &ours, why);

        if (err)
                return err;
        if (!ours)
                d->sparse = !d->device && c->blocks < c->bytes;
        if (c->empty || d->far->option->overwrite || (ours && !*c->found))
                return 0;
        snprintf(why, FAR_WHY, "%s%s%s%s: name another, %sor, if nobody needs that data, add "
                 "overwrite=yes to its options",
                 d->device && !*c->found ? "there may be data on this device"
                                         : "there is data in it that vmrun did not write",
                 *c->found ? " (" : "", c->found, *c->found ? ")" : "",
                 d->device ? "" : "or one that does not exist with ?size=8G, ");
        return -EEXIST;
}

/* A sparse file grows to the size that the user wants: that costs nothing until it is used. */
static int grow(struct disk_node *d, uint64_t *bytes, char why[FAR_WHY])
{
        uint64_t want = d->far->option->size;
        struct rlimit r;
        char a[32];

        if (d->device || want <= *bytes ||
            (*bytes && !d->sparse && !d->far->option->overwrite))
                return 0;
        /* Beyond the limit it would be a signal. */
        bool limited = getrlimit(RLIMIT_FSIZE, &r) == 0 && r.rlim_cur < want;
        if (limited || ftruncate(d->fd, (off_t)want) != 0) {
                int err = limited ? -EFBIG : -errno;
                snprintf(why, FAR_WHY, "it cannot have %s: %s: give less, or raise `ulimit -f`",
                         size_text(want, a), strerror(-err));
                return err;
        }
        *bytes = want;
        d->sparse = true;
        return 0;
}

static int take(struct disk_node *d, int64_t until, uint64_t *bytes, char why[FAR_WHY])
{
        struct content c = { .bytes = 0 };
        char a[32];
        int err = measure(d, &c, why);

        if (!err)
                err = lock(d, until, why);
        if (!err)
                err = look_for_others(d, &c, why);
        if (!err)
                err = go_direct(d, why);
        if (!err)
                err = may_overwrite(d, &c, why);
        if (!err)
                err = grow(d, &c.bytes, why);
        if (err)
                return err;
        *bytes = c.bytes & ~(uint64_t)(PAGE_SIZE - 1);
        if (*bytes >= 2 * PAGE_SIZE)
                return 0;
        snprintf(why, FAR_WHY, "it is too small with %s: give it a size, as in ?size=8G",
                 size_text(*bytes, a));
        return -EINVAL;
}

/* Takes away the file that this process has made, if it is still at its place. */
static void unmake(const struct disk_node *d, const char *path)
{
        struct stat there, st;

        if (d->created && stat(path, &there) == 0 && fstat(d->fd, &st) == 0 &&
            there.st_ino == st.st_ino && there.st_dev == st.st_dev)
                unlink(path);
}

int disk_claim(struct disk_node *d, const char *path, uint64_t *bytes, char why[FAR_WHY])
{
        int64_t until = now_ms() + LAST_WRITES_MS;
        int err = open_it(d, path, until, why);

        if (err)
                return err;
        err = take(d, until, bytes, why);
        if (err) {
                unmake(d, path);
                privfd_close(d->fd);
        }
        return err;
}

int disk_mark(struct disk_node *d)
{
        char *page = aligned_alloc(PAGE_SIZE, PAGE_SIZE);

        if (!page)
                return -ENOMEM;
        memset(page, 0, PAGE_SIZE);
        strcpy(page, mark);
        strcat(page, d->sparse ? was_sparse : was_full);
        ssize_t n = pwrite(d->fd, page, PAGE_SIZE, 0);
        int err = n == PAGE_SIZE ? 0 : n < 0 ? -errno : -EIO;
        free(page);
        d->marked = !err;
        return err;
}

void disk_give_back(struct disk_node *d, const char *path)
{
        struct stat st;

        if (!d->marked) {
                unmake(d, path);
                return;
        }
        if (d->sparse && fstat(d->fd, &st) == 0 && st.st_size > PAGE_SIZE)
                (void)!fallocate(d->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE_SIZE,
                                 st.st_size - PAGE_SIZE);
}
