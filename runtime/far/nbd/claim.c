/*
 * How this vmrun becomes the only user of an export that is no lease of memnode.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/privfd.h"
#include "far/nbd/claim.h"

/* FNV-1a: the lock's name need only tell exports apart.  A collision causes a refusal that names
 * the file. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
        for (const unsigned char *p = data; n; n--)
                h = (h ^ *p++) * 0x100000001b3ull;
        return h;
}

/* Any user may make files in this folder.  An existing file may be another user's, and only O_CREAT
 * is refused for those (fs.protected_regular). */
static int open_lock(const char *path)
{
        const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        struct stat st;

        int fd = open(path, flags);
        if (fd < 0 && errno == ENOENT)
                fd = open(path, flags | O_CREAT | O_EXCL, 0644);
        if (fd < 0 && errno == EEXIST)          /* another process made it in between */
                fd = open(path, flags);
        if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
                close(fd);
                errno = EINVAL;
                return -1;
        }
        return fd;
}

/*
 * Two vmruns on one export would destroy each other's pages.  The lock covers this host only:
 * neither other hosts nor other names of this server (another address, a symbolic link).  The
 * lock's file stays: removing it would race with the next process that takes the lock.
 */
int nbd_claim(const struct nbd_target *t, unsigned i, int *fd, char why[FAR_WHY])
{
        const char *own = getenv("XDG_RUNTIME_DIR"), *folder = access("/run/lock", W_OK) == 0
                                                                       ? "/run/lock"
                                                               : own && *own ? own
                                                                             : "/tmp";
        char path[PATH_MAX], real[PATH_MAX];
        uint64_t h = 0xcbf29ce484222325ull;

        if (t->socket && realpath(t->socket, real))
                h = hash(h, real, strlen(real) + 1);
        else
                h = hash(h, &t->address[i], t->length[i]);
        h = hash(h, t->export, strlen(t->export));
        snprintf(path, sizeof(path), "%.4000s/vmrun-nbd-%016llx.lock", folder,
                 (unsigned long long)h);

        int n = open_lock(path);
        if (n < 0) {
                int err = -errno;
                snprintf(why, FAR_WHY,
                         "cannot open the lock file %.150s: %s: remove it, or make its folder "
                         "writable",
                         path, strerror(-err));
                return err;
        }
        if (flock(n, LOCK_EX | LOCK_NB) != 0) {
                int err = errno == EWOULDBLOCK ? -EBUSY : -errno;
                close(n);
                if (err == -EBUSY)
                        snprintf(why, FAR_WHY,
                                 "a vmrun on this host uses this export (lock file %.80s): give "
                                 "each an export of its own",
                                 path);
                else
                        snprintf(why, FAR_WHY, "cannot lock %.150s: %s", path, strerror(-err));
                return err;
        }
        *fd = privfd_move(n);
        if (*fd < 0)
                snprintf(why, FAR_WHY, "no file descriptor is left for it: raise `ulimit -n`");
        return *fd < 0 ? *fd : 0;
}
