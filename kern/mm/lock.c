/*
 * mlock and its relatives.  A locked page takes a frame away from all others, so no more than half
 * the cache is locked.  Beside RLIMIT_MEMLOCK, all VMAs that are to be resident as a whole may
 * together be as long as that half: else ENOMEM.  VMAs of MLOCK_ONFAULT may be longer: their pages
 * are locked when they are touched, until half the cache is locked.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/state.h"
#include "mm/calls.h"
#include "paging/populate.h"
#include "space/account.h"
#include "space/pt.h"
#include "space/range.h"

/* One VMA, or its part in [start, end). */
static int apply_to(struct vma_node *n, uint64_t start, uint64_t end, uint32_t lock)
{
        struct vma v = n->v;
        uint32_t pay = 0;

        v.flags = (v.flags & ~VMA_LOCK) | lock;
        if (!(v.flags & (VMA_CHARGED | VMA_TOUCH)))
                pay = mm_payment(&v) & VMA_CHARGED;
        if (pay && !mm_charge(page_count(end - start)))
                return -ENOMEM;
        int err = mm_isolate(start, end, VMA_MAX);
        if (err) {
                if (pay)
                        mm_uncharge(page_count(end - start));
                return err;
        }
        n = vma_find(start);
        v = n->v;
        v.flags = (v.flags & ~VMA_LOCK) | lock | pay;
        vma_begin();
        vma_change(n, &v);
        vma_end();
        return 0;
}

/* Sets the VMA_LOCK flags of [start, end) to lock, up to the first hole (-ENOMEM) unless holes are
 * allowed.  Huge pages are not locked, as on Linux, where nothing takes them away. */
static int apply(uint64_t start, uint64_t end, uint32_t lock, bool holes)
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
                if ((n->v.flags & VMA_LOCK) == lock || n->v.order)
                        continue;
                err = apply_to(n, at, stop, lock);
                if (err)
                        break;
        }
        pt_wait_faults(start, at);
        mm_lock_frames(start, at, lock != 0);
        mm_merge(start, end);
        return err;
}

/* How many pages of the range are locked; whole: only in VMAs that are locked as a whole. */
static uint64_t locked_pages(uint64_t start, uint64_t end, bool whole)
{
        uint64_t pages = 0;
        for (struct vma_node *n = vma_find(start); n && n->v.start < end; n = vma_next(n))
                if (whole ? vma_locked_whole(&n->v) : n->v.flags & VMA_LOCKED)
                        pages += page_count(lower(n->v.end, end) - higher(n->v.start, start));
        return pages;
}

/* The range as mlock and munlock take it: whole pages around the range that was asked for.  -EINVAL
 * if it wraps. */
static int round_range(const uint64_t a[6], uint64_t *start, uint64_t *end)
{
        *start = a[0] & PAGE_MASK;
        *end = *start + page_align(a[1] + page_off(a[0]));
        return *end < *start ? -EINVAL : 0;
}

static long lock_range(const uint64_t a[6], uint32_t lock)
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
        uint64_t pages = page_count(end - start);
        err = mm_may_lock(pages - locked_pages(start, end, false),
                          lock & VMA_ONFAULT ? 0 : pages - locked_pages(start, end, true), -ENOMEM);
        if (!err)
                err = apply(start, end, lock, false);
        lock_drop(&mm_lock);

        mm_report_refusals();
        if (err || (lock & VMA_ONFAULT))
                return err;
        err = mm_populate_locked(start, end);
        /* The errors that POSIX wants. */
        return err == -EFAULT ? -ENOMEM : err == -ENOMEM ? -EAGAIN : err;
}

long sys_mlock(const uint64_t a[6])
{
        return lock_range(a, VMA_LOCKED);
}

long sys_mlock2(const uint64_t a[6])
{
        uint32_t flags = (uint32_t)a[2];
        if (flags & ~(uint32_t)MLOCK_ONFAULT)
                return -EINVAL;
        return lock_range(a, flags ? VMA_LOCK : VMA_LOCKED);
}

long sys_munlock(const uint64_t a[6])
{
        uint64_t start, end;
        int err = round_range(a, &start, &end);
        if (err || end == start)
                return err;
        lock_take(&mm_lock);
        err = apply(start, end, 0, false);
        lock_drop(&mm_lock);
        return err;
}

long sys_mlockall(const uint64_t a[6])
{
        uint32_t flags = (uint32_t)a[0], lock = flags & MCL_ONFAULT ? VMA_LOCK : VMA_LOCKED;
        int err = 0;
        if (!flags || (flags & ~(uint32_t)(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) ||
            flags == MCL_ONFAULT)
                return -EINVAL;
        if (!control.rlimit_memlock)
                return -EPERM;
        lock_take(&mm_lock);
        if (flags & MCL_CURRENT) {
                err = mm_may_lock(vma_counts.total - vma_counts.locked,
                                  lock & VMA_ONFAULT ? 0 : vma_counts.total - vma_counts.whole,
                                  -ENOMEM);
                if (!err)
                        /* Linux, too, ignores errors of single VMAs. */
                        apply(0, TASK_SIZE, lock, true);
        }
        if (!err)
                mm_lock_future = flags & MCL_FUTURE ? lock : 0;
        lock_drop(&mm_lock);

        mm_report_refusals();
        if (!err && (flags & MCL_CURRENT) && !(flags & MCL_ONFAULT))
                mm_populate_locked(0, TASK_SIZE);
        return err;
}

long sys_munlockall(const uint64_t a[6])
{
        (void)a;
        lock_take(&mm_lock);
        mm_lock_future = 0;
        apply(0, TASK_SIZE, 0, true);
        lock_drop(&mm_lock);
        return 0;
}
