/*
 * The marshaller: performs any row of a table in the three phases that syscalls/dispatch.h names.
 *
 * A bad pointer is not refused here: it is replaced by the bad address (sys_bad), and the host
 * kernel finds EFAULT, or an error that comes before it, where Linux does.  A buffer of which only
 * the beginning is accessible is replaced by one like it (sys_scratch_edge): the kernel decides how
 * much of it is needed.
 */
#include <fcntl.h>
#include <string.h>
#include "base/privfd.h"
#include "marshal/call.h"
#include "marshal/proc_path.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"

/* The size in bytes of argument i of a row. */
static size_t arg_size(const struct sys_arg *d, const uint64_t a[6], const uint64_t h[6])
{
        uint64_t n;

        if (d->len < 0)
                return d->size;
        if (d->kind == K_VOUT) {
                int32_t room;
                if (!h[d->len] || h[d->len] == P(sys_bad()))
                        return 0;
                memcpy(&room, (void *)(uintptr_t)h[d->len], 4);
                return room > 0 ? (size_t)room : 0;
        }
        n = a[d->len];
        if (d->flags & AF_INT)
                n = (int32_t)n > 0 ? (uint32_t)n : 0;
        else if (d->flags & AF_UINT)
                n = (uint32_t)n;
        if (n > SIZE_MAX / 16)
                return SIZE_MAX / 2;
        return n * d->size + d->add;
}

static uint64_t collect_mask(struct thread *t, uint64_t addr)
{
        uint64_t *mask = sys_in(t, addr, 8, 8);

        if ((void *)mask != sys_bad())
                sys_waits_with(t, *mask);
        return P(mask);
}

/* An argument that only the kernel reads. */
static uint64_t collect_in(struct thread *t, uint64_t addr, size_t n)
{
        void *p = sys_in(t, addr, n, SYS_ARG_MAX);

        /* An argument that is too long for us is too long for the kernel as well, but the kernel
         * may read its beginning before it refuses it. */
        return P(p != sys_bad() ? p : sys_in_edge(t, addr, n < SYS_ARG_MAX ? n : SYS_ARG_MAX));
}

/* A result of exactly n bytes, of which the program has room only for *reach bytes.  That may be
 * enough: the kernel does not always write all. */
static uint64_t collect_short(struct thread *t, uint64_t addr, size_t n, size_t *reach)
{
        void *p;

        *reach = sys_reach(t, addr, n, true);
        p = *reach ? sys_scratch_edge(*reach, n) : NULL;
        return p && !gmem_read(t, p, addr, *reach) ? P(p) : P(sys_bad());
}

/* The only result whose length the kernel refuses above a limit before all other checks. */
#define EPOLL_EVENT 12

/* No socket option reads more than this of the buffer that its value will replace. */
#define READ_FIRST 4096ul

/* Can a result of up to n bytes be stored?  For a result that may be shorter, only its first and
 * last byte are checked: making all of it resident would cost more than it is worth. */
static bool has_room(struct thread *t, uint64_t addr, size_t n, bool variable)
{
        uint64_t last = addr + n - 1;

        if (!n)
                return true;
        if (!variable)
                return !gmem_check(t, addr, n, true);
        return !gmem_check(t, addr, 1, true) &&
               (!((addr ^ last) & ~(uint64_t)(PAGE_SIZE - 1)) || !gmem_check(t, last, 1, true));
}

static uint64_t collect_out(struct thread *t, const struct sys_arg *d, const uint64_t a[6],
                            uint64_t h[6], int i, size_t *reach)
{
        size_t n = arg_size(d, a, h);
        bool variable = d->kind == K_VOUT || (d->flags & AF_RET);
        void *p;

        if (n > SYS_ARG_MAX) {
                if (!variable ||
                    (d->size == EPOLL_EVENT && n / EPOLL_EVENT > INT32_MAX / EPOLL_EVENT))
                        return P(sys_bad());
                /* No result is that long, so less room will do; the kernel must not be told of
                 * more. */
                n = SYS_ARG_MAX;
                if (d->kind == K_VOUT)
                        memcpy((void *)(uintptr_t)h[d->len], &(int32_t){ SYS_ARG_MAX }, 4);
                else
                        h[d->len] = (SYS_ARG_MAX - d->add) / d->size;
        }
        p = sys_scratch(n < 64 ? 64 : n);
        if (!p)
                return P(sys_bad());
        /* A result with a length argument is not checked: the kernel checks that length first. */
        if (d->kind != K_VOUT && !has_room(t, a[i], n, variable))
                return d->flags & AF_CHG ? P(sys_bad()) : collect_short(t, a[i], n, reach);
        if (d->kind == K_PRE && n && gmem_read(t, p, a[i], n))
                memset(p, 0, n);
        if ((d->flags & AF_READ) && gmem_read(t, p, a[i], n < READ_FIRST ? n : READ_FIRST))
                memset(p, 0, n < READ_FIRST ? n : READ_FIRST);
        return P(p);
}

/* What deliver() needs to know of the time before the call. */
struct before {
        int32_t room[6];
        size_t reach[6];                /* no more than this is copied back */
        uint64_t old[6][4];
};

/* The path that the kernel gets for argument i. */
static const char *resolved(const struct sys_row *row, const uint64_t a[6], int i, const char *path)
{
        const struct sys_arg *d = &row->arg[i];
        int dirfd = i > 0 && row->arg[i - 1].kind == K_FD ? (int)a[i - 1] : AT_FDCWD;
        bool itself = d->kind == K_PATH ? d->add && (a[d->add - 1] & AT_SYMLINK_NOFOLLOW) :
                                          row->nr == __NR_lstat;

        if (itself)
                return procfs_itself(dirfd, path);
        return d->kind == K_PATH ? procfs_follow(dirfd, path) : path;
}

/* Preconditions: h[] holds a copy of a[], and of b only reach is set.  0, or -errno. */
static long collect(struct thread *t, const struct sys_row *row, const uint64_t a[6], uint64_t h[6],
                    struct before *b)
{
        for (int i = 0; i < 6; i++) {
                const struct sys_arg *d = &row->arg[i];

                if (d->kind == K_VAL || (!a[i] && (d->flags & AF_NULL)))
                        continue;
                switch (d->kind) {
                case K_FD:
                        /* A descriptor that the program must not see counts as not open: the kernel
                         * finds EBADF. */
                        if (privfd_is((int)a[i]))
                                h[i] = (uint32_t)INT32_MAX;
                        break;
                case K_PATH: case K_PATHL:
                        h[i] = P(sys_string(t, a[i]));
                        if (h[i] != P(sys_bad()))
                                h[i] = P(resolved(row, a, i, (const char *)(uintptr_t)h[i]));
                        break;
                case K_IN:
                        h[i] = collect_in(t, a[i], arg_size(d, a, h));
                        break;
                case K_INOUT:
                        h[i] = P(sys_in(t, a[i], arg_size(d, a, h), SYS_ARG_MAX));
                        break;
                case K_BLOCKED:
                        h[i] = collect_mask(t, a[i]);
                        break;
                }
        }
        /* Results second: the length of one may be an argument read above. */
        for (int i = 0; i < 6; i++) {
                const struct sys_arg *d = &row->arg[i];

                b->reach[i] = SIZE_MAX;
                if ((d->kind == K_OUT || d->kind == K_PRE || d->kind == K_VOUT) &&
                    (a[i] || !(d->flags & AF_NULL)))
                        h[i] = collect_out(t, d, a, h, i, &b->reach[i]);
        }
        return 0;
}

/* The kernel may check for impossible addresses first. */
static uint64_t for_kernel(uint64_t h, uint64_t a) { return h == P(sys_bad()) ? sys_bad_at(a) : h; }

static void remember(const struct sys_row *row, const uint64_t a[6], const uint64_t h[6],
                     struct before *b)
{
        for (int i = 0; i < 6; i++) {
                const struct sys_arg *d = &row->arg[i];

                if (d->kind == K_VOUT)
                        b->room[i] = (int32_t)arg_size(d, a, h);
                if ((d->flags & (AF_CHG | AF_FAIL)) && h[i] && h[i] != P(sys_bad()))
                        memcpy(b->old[i], (void *)(uintptr_t)h[i], d->size);
        }
}

/* How many bytes of argument i are copied back to the program. */
static size_t result_size(const struct sys_arg *d, const uint64_t a[6], const uint64_t h[6], int i,
                          const struct before *b, long ret)
{
        const void *p = (void *)(uintptr_t)h[i];

        if ((d->flags & AF_CHG) || ((d->flags & AF_FAIL) && ret < 0))
                return memcmp(p, b->old[i], d->size) ? d->size : 0;
        if (ret < 0)
                return 0;
        if (d->flags & AF_RET) {
                size_t n = (size_t)ret * d->size + d->add, room = arg_size(d, a, h);
                return n < room ? n : room;
        }
        if (d->kind == K_VOUT) {
                int32_t came;
                memcpy(&came, (void *)(uintptr_t)h[d->len], 4);
                return came < 0 ? 0 : (size_t)(came < b->room[i] ? came : b->room[i]);
        }
        return arg_size(d, a, h);
}

static long deliver(struct thread *t, const struct sys_row *row, const uint64_t a[6],
                    const uint64_t h[6], const struct before *b, long ret)
{
        for (int i = 0; i < 6; i++) {
                const struct sys_arg *d = &row->arg[i];

                if (d->kind != K_OUT && d->kind != K_INOUT && d->kind != K_PRE && d->kind != K_VOUT)
                        continue;
                if (!h[i] || h[i] == P(sys_bad()))
                        continue;
                size_t n = result_size(d, a, h, i, b, ret);
                if (n > b->reach[i])
                        n = b->reach[i];
                if (n && gmem_write(t, a[i], (void *)(uintptr_t)h[i], n) && !(d->flags & AF_CHG))
                        return -EFAULT;
        }
        return ret;
}

/* Closes new descriptors that are beyond the program's limit, and those that the program will never
 * learn of. */
static long check_newfd(const struct sys_row *row, const uint64_t h[6], long ret)
{
        if (row->flags & RF_NEWFD)
                return sys_newfd(ret);
        if ((row->flags & RF_NEWFD2) && ret >= 0) {
                int fd[2];

                memcpy(fd, (void *)(uintptr_t)h[row->arg[0].kind == K_OUT ? 0 : 3], sizeof(fd));
                if ((uint64_t)fd[0] >= privfd_nofile_soft() ||
                    (uint64_t)fd[1] >= privfd_nofile_soft()) {
                        sys_own(__NR_close, (uint64_t)fd[0], 0, 0, 0, 0, 0);
                        sys_own(__NR_close, (uint64_t)fd[1], 0, 0, 0, 0, 0);
                        return -EMFILE;
                }
        }
        return ret;
}

long sys_generic(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct before b;
        uint64_t h[6];
        long ret;

        memcpy(h, a, sizeof(h));
        ret = collect(t, row, a, h, &b);
        if (ret)
                return ret;
        remember(row, a, h, &b);
        /* For a path, EFAULT comes first. */
        if ((row->flags & RF_RESERVE) && h[0] != P(sys_bad()) && h[1] != P(sys_bad()) &&
            sys_no_fd_left())
                return -EMFILE;
        ret = sys_raw(row->nr, for_kernel(h[0], a[0]), for_kernel(h[1], a[1]),
                      for_kernel(h[2], a[2]), for_kernel(h[3], a[3]), for_kernel(h[4], a[4]),
                      for_kernel(h[5], a[5]));
        ret = check_newfd(row, h, ret);
        if ((row->flags & RF_LINKS) && ret == 0)
                procfs_links(t, row->nr, h);
        long said = deliver(t, row, a, h, &b, ret);
        if (said < 0 && ret >= 0 && (row->flags & RF_NEWFD))
                sys_own(__NR_close, (uint64_t)ret, 0, 0, 0, 0, 0);
        return said;
}
