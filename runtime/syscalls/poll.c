/*
 * poll, ppoll, select, pselect6: sets of descriptors, in which vmrun's own must look closed; the
 * time left is written back.
 */
#include <poll.h>
#include <string.h>
#include <sys/time.h>
#include "base/privfd.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "syscalls/handlers.h"

/* Copies back the time left.  The kernel tries this after any result, and ignores a failure. */
static void time_left(struct thread *t, uint64_t addr, const void *now, const uint64_t old[2])
{
        if (addr && now && now != sys_bad() && memcmp(now, old, 16))
                (void)gmem_write(t, addr, now, 16);
}

static long do_poll(struct thread *t, const struct sys_row *row, const uint64_t a[6],
                    uint64_t timeout, uint64_t mask)
{
        uint64_t n = (uint32_t)a[1];
        struct pollfd *host;
        int *fds;
        long ret;

        if (n > privfd_nofile_soft())
                return -EINVAL;
        host = sys_in(t, a[0], n * sizeof(*host), n * sizeof(*host));
        fds = sys_scratch(n * sizeof(*fds) + 1);
        if (!fds)
                return -ENOMEM;
        if (host == sys_bad())
                return -EFAULT;
        for (uint64_t i = 0; i < n; i++) {
                fds[i] = host[i].fd;
                if (fds[i] >= 0 && privfd_is(fds[i]))
                        host[i].fd = INT32_MAX;
        }
        ret = sys_raw(row->nr, P(host), n, timeout, mask, a[4], 0);
        if (ret < 0 || !n)
                return ret;
        for (uint64_t i = 0; i < n; i++)
                host[i].fd = fds[i];
        /* Also when nothing is ready: revents are cleared. */
        return gmem_write(t, a[0], host, n * sizeof(*host)) ? -EFAULT : ret;
}

long sys_poll(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        return do_poll(t, row, a, a[2], 0);
}

static void *blocked_mask(struct thread *t, uint64_t addr)
{
        uint64_t *m = sys_in_null(t, addr, 8);

        if (m && (void *)m != sys_bad())
                sys_waits_with(t, *m);
        return m;
}

long sys_ppoll(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        void *ts = sys_in_null(t, a[2], 16);
        void *mask = blocked_mask(t, a[3]);
        uint64_t old[2] = { 0 };
        long ret;

        if (ts && ts != sys_bad())
                memcpy(old, ts, 16);
        ret = do_poll(t, row, a, P(ts), P(mask));
        time_left(t, a[2], ts, old);
        return ret;
}

static long do_select(struct thread *t, const struct sys_row *row, const uint64_t a[6],
                      uint64_t timeout, uint64_t sig)
{
        int32_t n = (int32_t)a[0];
        uint64_t limit = privfd_nofile_soft();
        void *set[3] = { NULL };
        size_t bytes;
        long ret;

        /* The kernel cuts n at the size of its table, which includes vmrun's descriptors: cut
         * before vmrun's. */
        if (n > 0 && (uint64_t)n > limit)
                n = (int32_t)limit;
        bytes = n > 0 ? ((size_t)n + 63) / 64 * 8 : 0;
        for (int i = 0; i < 3 && bytes; i++) {
                set[i] = sys_in_null(t, a[1 + i], bytes);
                if (set[i] == sys_bad())
                        return -EFAULT;
        }
        for (int fd = n > 0 ? privfd_next(0) : -1; fd >= 0 && fd < n; fd = privfd_next(fd + 1))
                for (int i = 0; i < 3; i++)
                        if (set[i] && (((uint64_t *)set[i])[fd / 64] >> (fd % 64) & 1))
                                return -EBADF;
        ret = sys_raw(row->nr, (uint64_t)(int64_t)n, P(set[0]), P(set[1]), P(set[2]), timeout, sig);
        for (int i = 0; i < 3 && ret >= 0; i++)
                ret = sys_deliver(t, a[1 + i], set[i], bytes, ret);
        return ret;
}

long sys_select(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        void *tv = sys_in_null(t, a[4], sizeof(struct timeval));
        uint64_t old[2] = { 0 };
        long ret;

        if (tv && tv != sys_bad())
                memcpy(old, tv, 16);
        ret = do_select(t, row, a, P(tv), 0);
        time_left(t, a[4], tv, old);
        return ret;
}

long sys_pselect6(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        void *ts = sys_in_null(t, a[4], 16);
        uint64_t *sig = sys_in_null(t, a[5], 16);       /* { mask, size } */
        uint64_t old[2] = { 0 };
        long ret;

        if (ts && ts != sys_bad())
                memcpy(old, ts, 16);
        if (sig && (void *)sig != sys_bad())
                sig[0] = P(blocked_mask(t, sig[0]));
        ret = do_select(t, row, a, P(ts), P(sig));
        time_left(t, a[4], ts, old);
        return ret;
}
