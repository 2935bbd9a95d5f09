/*
 * vmrun's own memory files: made, sealed, and opened again.  See memfd.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/privfd.h"
#include "common/size.h"
#include "far/memfd.h"

/* RLIMIT_FSIZE is for the program's files, not for memory. */
static int set_size(int fd, uint64_t bytes)
{
        struct rlimit old, most;
        if (getrlimit(RLIMIT_FSIZE, &old) != 0 || old.rlim_cur == RLIM_INFINITY ||
            old.rlim_cur >= bytes)
                return ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
        if (old.rlim_max < bytes)
                return -EFBIG;          /* ftruncate would also raise SIGXFSZ */
        most = (struct rlimit){ old.rlim_max, old.rlim_max };
        setrlimit(RLIMIT_FSIZE, &most);
        int err = ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
        setrlimit(RLIMIT_FSIZE, &old);
        return err;
}

int memfd_open(const char *name, uint64_t bytes, char *why, size_t n)
{
        char text[32];
        int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0) {
                int err = -errno;
                snprintf(why, n, "cannot make a memory file: %s", strerror(-err));
                return err;
        }
        int err = set_size(fd, bytes);
        if (err) {
                snprintf(why, n, "cannot make a memory file of %s: %s%s", size_text(bytes, text),
                         strerror(-err),
                         err == -EFBIG ? ": raise `ulimit -f` or give a smaller size" : "");
                close(fd);
                return err;
        }
        /* A page that vanished under the guest would be lost silently. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        return fd;
}

int memfd_make(const char *name, uint64_t bytes, char *why, size_t n)
{
        bool held = privfd_making();
        int fd = memfd_open(name, bytes, why, n);

        if (fd >= 0) {
                fd = privfd_move(fd);
                if (fd < 0)
                        snprintf(why, n, "no file descriptor is left for it: raise `ulimit -n`");
        }
        privfd_made(held);
        return fd;
}

/* Of /proc, private; -1: none.  Stored once, at the start. */
static int proc_fd = -1;

void memfd_init(int proc) { proc_fd = proc; }
int memfd_proc(void) { return proc_fd; }

static bool is_same(int a, int b)
{
        struct stat x, y;

        return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
               x.st_ino == y.st_ino;
}

int memfd_again(int fd)
{
        char link[32];

        /* Not "self": the first thread may have ended, and has no files then. */
        snprintf(link, sizeof(link), "thread-self/fd/%d", fd);
        int again = proc_fd < 0 ? -ENOENT : PRIVFD_NEW(openat(proc_fd, link, O_RDONLY | O_CLOEXEC));
        if (again == -ENOENT)
                return -ENOSYS;
        if (again >= 0 && !is_same(again, fd)) {        /* not the real /proc */
                privfd_close(again);
                return -ENOSYS;
        }
        return again;
}
