/*
 * Calls about descriptors: fcntl, dup2 and dup3, close_range, directory listings, file handles,
 * fsconfig.
 */
#include <fcntl.h>
#include <string.h>
#include "base/privfd.h"
#include "marshal/call.h"
#include "marshal/proc_path.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "procfs/maps.h"
#include "syscalls/handlers.h"

#ifndef F_GET_RW_HINT
#define F_GET_RW_HINT 1035
#define F_SET_FILE_RW_HINT 1038
#endif
#define F_GETOWNER_UIDS_ 17

/* The struct behind a fcntl command's argument: its size and direction. */
static size_t fcntl_struct(int cmd, bool *in, bool *out)
{
        *in = *out = false;
        switch (cmd) {
        case F_GETLK: case F_OFD_GETLK:
                *out = true;
                /* fallthrough */
        case F_SETLK: case F_SETLKW: case F_OFD_SETLK: case F_OFD_SETLKW:
                *in = true;
                return sizeof(struct flock);
        case 15: /* F_SETOWN_EX */
                *in = true;
                return 8;
        case 16: /* F_GETOWN_EX */ case F_GETOWNER_UIDS_:
                *out = true;
                return 8;
        case F_GET_RW_HINT: case F_GET_RW_HINT + 2:
                *out = true;
                return 8;
        case F_GET_RW_HINT + 1: case F_SET_FILE_RW_HINT:
                *in = true;
                return 8;
        }
        return 0;
}

long sys_fcntl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int cmd = (int)a[1];
        bool in, out;
        size_t n;
        void *p;
        long ret;

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) {
                ret = sys_raw(row->nr, a[0], F_GETFD, 0, 0, 0, 0);
                if (ret < 0)
                        return ret;
                if ((uint32_t)a[2] >= privfd_nofile_soft())
                        return -EINVAL;
                return sys_newfd(sys_raw(row->nr, a[0], a[1], a[2], 0, 0, 0));
        }
        n = fcntl_struct(cmd, &in, &out);
        if (!n)
                return sys_raw(row->nr, a[0], a[1], a[2], 0, 0, 0);
        p = in ? sys_in(t, a[2], n, n) : sys_out(t, a[2], n);
        ret = sys_raw(row->nr, a[0], a[1], P(p), 0, 0, 0);
        return ret >= 0 && out ? sys_deliver(t, a[2], p, n, ret) : ret;
}

typedef long numbers_fn(long nr, const uint64_t a[6]);

/* A call that closes or replaces descriptor numbers that the program chose.  The lock is held from
 * the check whether a number is vmrun's until the call is over, but not while this thread is
 * stopped: a fork makes descriptors then. */
static long on_numbers(struct thread *t, numbers_fn *f, long nr, const uint64_t a[6])
{
        threads_safe_begin(t);
        privfd_numbers_lock();
        long ret = f(nr, a);
        privfd_numbers_unlock();
        threads_safe_end(t);
        return ret;
}

/* The program's call, within on_numbers(). */
static long enter(long nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return sys_enter(&sys_put_off, nr, (const uint64_t[6]){ a0, a1, a2 });
}

static long close_number(long nr, const uint64_t a[6])
{
        return privfd_is((int)a[0]) ? -EBADF : enter(nr, a[0], 0, 0);
}

long sys_close(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return on_numbers(t, close_number, row->nr, a);
}

static long dup_to(long nr, const uint64_t a[6])
{
        if (privfd_is((int)a[0]))
                return -EBADF;
        if (nr == __NR_dup3 && ((a[2] & ~(uint64_t)O_CLOEXEC) || (uint32_t)a[0] == (uint32_t)a[1]))
                return -EINVAL;
        if (privfd_is((int)a[1]) ||
            ((uint32_t)a[1] >= privfd_nofile_soft() && (uint32_t)a[0] != (uint32_t)a[1]))
                return -EBADF;
        return enter(nr, a[0], a[1], a[2]);
}

/* dup2 and dup3. */
long sys_dup2(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return on_numbers(t, dup_to, row->nr, a);
}

/*
 * Closes all but vmrun's own, in this process's table: with CLOSE_RANGE_UNSHARE the kernel would
 * give this thread its own table, which vmrun's other threads would not share.  A program with one
 * thread sees no difference.
 */
static long close_all(long nr, const uint64_t a[6])
{
        uint64_t first = (uint32_t)a[0], last = (uint32_t)a[1];
        uint64_t flags = a[2] & ~2ull /* CLOSE_RANGE_UNSHARE */;

        if ((a[2] & ~6ull) || first > last)
                return -EINVAL;
        while (first <= last && first <= INT32_MAX) {
                int next = privfd_next((int)first);
                uint64_t end = next < 0 || (uint64_t)next > last ? last : (uint64_t)next - 1;
                if (next < 0 || (uint64_t)next > first) {
                        long ret = enter(nr, first, end, flags);
                        if (ret)
                                return ret;
                }
                if (next < 0 || (uint64_t)next > last)
                        break;
                first = (uint64_t)next + 1;
        }
        return 0;
}

long sys_close_range(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return on_numbers(t, close_all, row->nr, a);
}

/* One name of a listing, as getdents and getdents64 lay it out. */
static const char *entry_name(long nr, const char *entry)
{
        return entry + (nr == __NR_getdents64 ? 19 : 18);
}

/* Removes vmrun's own entries from a listing; returns its new length. */
static size_t hide_own(enum procfs_dir dir, long nr, char *buf, size_t n)
{
        size_t to = 0;

        for (size_t at = 0; at < n;) {
                uint16_t len;
                memcpy(&len, buf + at + 16, sizeof(len));
                if (!procfs_hides(dir, entry_name(nr, buf + at))) {
                        memmove(buf + to, buf + at, len);
                        to += len;
                }
                at += len;
        }
        return to;
}

long sys_getdents(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        size_t room = (uint32_t)a[2];
        enum procfs_dir dir;
        char *buf;
        long ret;

        if (privfd_is((int)a[0]) || (dir = procfs_dir((int)a[0])) == PROCFS_OTHER)
                return sys_generic(t, row, a);
        if (room > SYS_BOUNCE)
                room = SYS_BOUNCE;
        buf = sys_scratch(room + 1);
        if (!buf)
                return -ENOMEM;
        if (room && gmem_check(t, a[1], 1, true))
                return -EFAULT;
        if (dir == PROCFS_MAPS) {
                ret = procfs_list_maps(t, (int)a[0], row->nr == __NR_getdents64, buf, room);
                return ret > 0 ? sys_deliver(t, a[1], buf, (size_t)ret, ret) : ret;
        }
        /* If the filter leaves nothing, read on: 0 would mean the end. */
        do {
                ret = sys_raw(row->nr, a[0], P(buf), room, 0, 0, 0);
                if (ret <= 0)
                        return ret;
                ret = (long)hide_own(dir, row->nr, buf, (size_t)ret);
        } while (!ret);
        return sys_deliver(t, a[1], buf, (size_t)ret, ret);
}

/* String values are passed on; a blob, whose length is in aux, is not supported. */
long sys_fsconfig(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        if (a[1] == 2 /* FSCONFIG_SET_BINARY */)
                return -EOPNOTSUPP;
        return sys_generic(t, row, a);
}

/* The last argument is a number; for one kind of comparison it is the address of a struct. */
long sys_kcmp(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t last = (int)a[2] == 7 /* KCMP_EPOLL_TFD */ ? P(sys_in(t, a[4], 12, 12)) : a[4];

        return sys_raw(row->nr, a[0], a[1], a[2], a[3], last, 0);
}

#define HANDLE_MAX 128

long sys_name_to_handle(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        char *path = sys_string(t, a[1]);
        uint32_t *h = sys_scratch(8 + HANDLE_MAX);
        int *mount = sys_out(t, a[3], 4);
        uint32_t room;
        long ret;

        if (!h)
                return -ENOMEM;
        if (privfd_is((int)a[0]))
                return -EBADF;
        if (gmem_read(t, h, a[2], 8))
                h = sys_bad();
        else if (h[0] > HANDLE_MAX)
                return -EINVAL;
        room = (void *)h == sys_bad() ? 0 : h[0];
        ret = sys_raw(row->nr, a[0], P(path), P(h), P(mount), a[4], 0);
        if (ret == 0 || ret == -EOVERFLOW) {
                size_t n = 8 + (ret == 0 && h[0] < room ? h[0] : ret == 0 ? room : 0);
                if (gmem_write(t, a[2], h, n))
                        return -EFAULT;
                ret = sys_deliver(t, a[3], mount, 4, ret);
        }
        return ret;
}

long sys_open_by_handle(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t *h = sys_scratch(8 + HANDLE_MAX);

        if (!h)
                return -ENOMEM;
        if (privfd_is((int)a[0]))
                return -EBADF;
        if (gmem_read(t, h, a[1], 8))
                h = sys_bad();
        else if (h[0] > HANDLE_MAX)
                return -EINVAL;
        else if (gmem_read(t, h + 2, a[1] + 8, h[0]))
                return -EFAULT;
        return sys_newfd(sys_raw(row->nr, a[0], P(h), a[2], 0, 0, 0));
}
