/*
 * mlock and its relatives.  A locked page takes a frame away from all others, so beside
 * RLIMIT_MEMLOCK all locked VMAs together may be at most half the cache: ENOMEM.
 */
#include <asm-generic/errno.h>
#include "base/state.h"
#include "mm/calls.h"
#include "paging/populate.h"
#include "space/account.h"
#include "space/pt.h"
#include "space/range.h"

/* Sets or clears VMA_LOCKED in [start, end), up to the first hole (-ENOMEM) unless holes are
 * allowed.  Huge pages are not locked, as on Linux, where nothing takes them away. */
static int apply(uint64_t start, uint64_t end, bool lock, bool holes)
{
        int err = 0;
        uint64_t at = start;
        for (uint64_t stop; at < end; at = stop) {
                struct vma_node *n = vma_find(at);
                if (!n || n->v.start >= end || (n->v.start > at && !holes)) {
                        err = holes ? 0 : -ENOMEM;
                        break;
                }
                at = higher(at, n->v.start);
                stop = lower(n->v.end, end);
                if (!!(n->v.flags & VMA_LOCKED) == lock || n->v.order)
                        continue;
                err = mm_isolate(at, stop, VMA_MAX);
                if (err)
                        break;
                n = vma_find(at);
                struct vma v = n->v;
                v.flags ^= VMA_LOCKED;
                vma_begin();
                vma_change(n, &v);
                vma_end();
        }
        pt_wait_faults(start, at);
        mm_lock_frames(start, at, lock);
        mm_merge(start, end);
        return err;
}

static uint64_t locked_pages(uint64_t start, uint64_t end)
{
        uint64_t pages = 0;
        for (struct vma_node *n = vma_find(start); n && n->v.start < end; n = vma_next(n))
                if (n->v.flags & VMA_LOCKED)
                        pages += page_count(lower(n->v.end, end) - higher(n->v.start, start));
        return pages;
}

/* The range as mlock and munlock take it: whole pages around what was asked for.  -EINVAL if it
 * wraps. */
static int round_range(const uint64_t a[6], uint64_t *start, uint64_t *end)
{
        *start = a[0] & PAGE_MASK;
        *end = *start + page_align(a[1] + page_off(a[0]));
        return *end < *start ? -EINVAL : 0;
}

static long lock_range(const uint64_t a[6], bool populate)
{
        uint64_t start, end;
        if (!control.rlimit_memlock)
                return -EPERM;
        int err = round_range(a, &start, &end);
        if (err)
                return page_count(end - start) > page_count(control.rlimit_memlock) ? -ENOMEM : err;
        if (end == start)
                return 0;

        lock_take(&mm_lock);
        err = mm_may_lock(page_count(end - start) - locked_pages(start, end), -ENOMEM);
        if (!err)
                err = apply(start, end, true, false);
        lock_drop(&mm_lock);

        if (err || !populate)
                return err;
        err = mm_populate_locked(start, end);
        /* The errors that POSIX wants. */
        return err == -EFAULT ? -ENOMEM : err == -ENOMEM ? -EAGAIN : err;
}

long sys_mlock(const uint64_t a[6])
{
        return lock_range(a, true);
}

long sys_mlock2(const uint64_t a[6])
{
        if (a[2] & ~(uint64_t)MLOCK_ONFAULT)
                return -EINVAL;
        return lock_range(a, !(a[2] & MLOCK_ONFAULT));
}

long sys_munlock(const uint64_t a[6])
{
        uint64_t start, end;
        int err = round_range(a, &start, &end);
        if (err || end == start)
                return err;
        lock_take(&mm_lock);
        err = apply(start, end, false, false);
        lock_drop(&mm_lock);
        return err;
}

long sys_mlockall(const uint64_t a[6])
{
        uint64_t flags = a[0];
        int err = 0;
        if (!flags || (flags & ~(uint64_t)(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) ||
            flags == MCL_ONFAULT)
                return -EINVAL;
        if (!control.rlimit_memlock)
                return -EPERM;
        lock_take(&mm_lock);
        if (flags & MCL_CURRENT) {
                err = mm_may_lock(vma_counts.total - vma_counts.locked, -ENOMEM);
                if (!err)
                        /* Linux, too, ignores errors of single VMAs. */
                        apply(0, TASK_SIZE, true, true);
        }
        if (!err) {
                mm_lock_future = flags & MCL_FUTURE ? VMA_LOCKED : 0;
                mm_lock_onfault = flags & MCL_ONFAULT;
        }
        lock_drop(&mm_lock);

        if (!err && (flags & MCL_CURRENT) && !(flags & MCL_ONFAULT))
                mm_populate_locked(0, TASK_SIZE);
        return err;
}

long sys_munlockall(const uint64_t a[6])
{
        (void)a;
        lock_take(&mm_lock);
        mm_lock_future = 0;
        mm_lock_onfault = false;
        apply(0, TASK_SIZE, false, true);
        lock_drop(&mm_lock);
        return 0;
}
