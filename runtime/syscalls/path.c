/*
 * The open family and readlink: where paths into /proc must lead to the program and not to vmrun.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "sys.h"
#include "../image.h"
#include "../procfs.h"

/*
 * Does any file with this number have the lock of a running program (image.h)?  To ask the file itself means to open and close it, and
 * that would drop locks (fcntl) that the program has on it.
 */
static bool may_be_running(ino_t ino)
{
        char text[4096], wanted[64];
        size_t have = 0;
        ssize_t n = 0;
        bool found = false;

        int fd = PRIVFD_NEW(open("/proc/locks", O_RDONLY | O_CLOEXEC));
        if (fd < 0)
                return true;
        snprintf(wanted, sizeof wanted, ":%lu %lld ", (unsigned long)ino, (long long)program_lock(F_RDLCK).l_start);
        while (!found && (n = read(fd, text + have, sizeof text - 1 - have)) > 0) {
                have += (size_t)n;
                text[have] = 0;
                found = strstr(text, wanted) != NULL;
                size_t keep = have < sizeof wanted ? have : sizeof wanted;      /* one may be cut in two */
                memmove(text, text + have - keep, keep);
                have = keep;
        }
        privfd_close(fd);
        return found || n < 0;
}

bool sys_text_busy(int dirfd, const char *path, int flags)
{
        bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC), new = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
        struct stat st;

        if (!writes || new || (flags & (O_PATH | O_DIRECTORY)))
                return false;
        if (fstatat(dirfd, path, &st, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
                return false;
        if (faccessat(dirfd, path, W_OK, AT_EACCESS))
                return false;           /* which is what Linux says then */
        if (!may_be_running(st.st_ino))
                return false;
        int fd = PRIVFD_NEW(openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        bool busy = fd >= 0 && program_is_running(fd);
        if (fd >= 0)
                privfd_close(fd);
        return busy;
}

static long open_at(struct thread *t, long nr, const uint64_t a[6], int dirfd, uint64_t path, int flags)
{
        char *s = sys_string(t, path);
        long ret;

        if (s != sys_bad() && !privfd_is(dirfd) && procfs_open(t, dirfd, s, flags, &ret))
                return sys_newfd(ret);
        if (s != sys_bad() && !privfd_is(dirfd) && sys_text_busy(dirfd, procfs_follow(dirfd, s), flags))
                return -ETXTBSY;
        ret = sys_generic(t, nr, a);
        if (ret >= 0 && (flags & O_TRUNC))
                sys_cut(t, (int)ret);
        return ret;
}

long sys_open(struct thread *t, long nr, const uint64_t a[6])
{
        return open_at(t, nr, a, AT_FDCWD, a[0], (int)a[1]);
}

long sys_creat(struct thread *t, long nr, const uint64_t a[6])
{
        return open_at(t, nr, a, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC);
}

long sys_openat(struct thread *t, long nr, const uint64_t a[6])
{
        return open_at(t, nr, a, (int)a[0], a[1], (int)a[2]);
}

/* struct open_how { flags, mode, resolve } may be longer one day: what we do not know must be zero, the kernel checks. */
long sys_openat2(struct thread *t, long nr, const uint64_t a[6])
{
        char *s = sys_string(t, a[1]);
        uint64_t *how = sys_in(t, a[2], a[3], PAGE_SIZE);
        const char *path = s;
        int flags = 0;
        long ret;

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (s != sys_bad() && (void *)how != sys_bad() && a[3] >= 24) {
                flags = (int)how[0];
                if (procfs_open(t, (int)a[0], s, flags, &ret))
                        return sys_newfd(ret);
                if (!how[2])
                        path = procfs_follow((int)a[0], s);
                if (!how[2] && sys_text_busy((int)a[0], path, flags))
                        return -ETXTBSY;
        }
        if (s != sys_bad() && sys_no_fd_left())
                return -EMFILE;
        ret = sys_newfd(sys_raw(nr, a[0], P(path), P(how), a[3], 0, 0));
        if (ret >= 0 && (flags & O_TRUNC))
                sys_cut(t, (int)ret);
        return ret;
}

static long link_at(struct thread *t, long nr, const uint64_t a[6], int dirfd, uint64_t path, uint64_t buf, uint64_t room)
{
        char *s = sys_string(t, path);
        char target[PAGE_SIZE];
        long n = -1;

        if ((int)room > 0 && s != sys_bad() && !privfd_is(dirfd))
                n = procfs_readlink(dirfd, s, target, room < sizeof target ? room : sizeof target);
        if (n >= 0)
                return gmem_write(t, buf, target, (size_t)n) ? -EFAULT : n;
        if (n == -ENOENT)
                return n;
        return sys_generic(t, nr, a);
}

long sys_readlink(struct thread *t, long nr, const uint64_t a[6])
{
        return link_at(t, nr, a, AT_FDCWD, a[0], a[1], (uint32_t)a[2]);
}

long sys_readlinkat(struct thread *t, long nr, const uint64_t a[6])
{
        return link_at(t, nr, a, (int)a[0], a[1], a[2], (uint32_t)a[3]);
}
