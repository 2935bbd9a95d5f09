/*
 * The open family and readlink: paths into /proc must lead to the program and not to vmrun.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/privfd.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "procfs/procfs.h"
#include "syscalls/handlers.h"
#include "syscalls/truncate.h"

static long open_at(struct thread *t, const struct sys_row *row, const uint64_t a[6], int dirfd,
                    uint64_t path, int flags)
{
        char *s = sys_string(t, path);
        long ret;

        if (s != sys_bad() && !privfd_is(dirfd) && procfs_open(t, dirfd, s, flags, &ret))
                return sys_newfd(ret);
        if (s != sys_bad() && !privfd_is(dirfd) &&
            sys_text_busy(dirfd, procfs_follow(dirfd, s), flags))
                return -ETXTBSY;
        ret = sys_generic(t, row, a);
        if (ret >= 0 && (flags & O_TRUNC))
                sys_cut(t, (int)ret);
        return ret;
}

long sys_open(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return open_at(t, row, a, AT_FDCWD, a[0], (int)a[1]);
}

long sys_creat(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return open_at(t, row, a, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC);
}

long sys_openat(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return open_at(t, row, a, (int)a[0], a[1], (int)a[2]);
}

/* struct open_how { flags, mode, resolve } may become longer: unknown parts must be zero, which the
 * kernel checks. */
long sys_openat2(struct thread *t, const struct sys_row *row, const uint64_t a[6])
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
        ret = sys_newfd(sys_raw(row->nr, a[0], P(path), P(how), a[3], 0, 0));
        if (ret >= 0 && (flags & O_TRUNC))
                sys_cut(t, (int)ret);
        return ret;
}

static long link_at(struct thread *t, const struct sys_row *row, const uint64_t a[6], int dirfd,
                    uint64_t path, uint64_t buf, uint64_t room)
{
        char *s = sys_string(t, path);
        char target[PAGE_SIZE];
        long n = -1;

        if ((int)room > 0 && s != sys_bad() && !privfd_is(dirfd))
                n = procfs_readlink(dirfd, s, target,
                                    room < sizeof(target) ? room : sizeof(target));
        if (n >= 0)
                return gmem_write(t, buf, target, (size_t)n) ? -EFAULT : n;
        if (n == -ENOENT)
                return n;
        return sys_generic(t, row, a);
}

long sys_readlink(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return link_at(t, row, a, AT_FDCWD, a[0], a[1], (uint32_t)a[2]);
}

long sys_readlinkat(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return link_at(t, row, a, (int)a[0], a[1], a[2], (uint32_t)a[3]);
}
