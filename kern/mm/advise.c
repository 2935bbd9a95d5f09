/*
 * madvise.
 *
 * Differences from Linux: MADV_FREE frees at once, which is allowed.  MADV_REMOVE of a shared file
 * is EOPNOTSUPP, as on a file system that cannot punch holes.  MADV_MERGEABLE pages are never
 * merged, as if KSM does not run.  There is no MADV_COLLAPSE (EINVAL, as in a kernel without it).
 * Advice that changes nothing here (MADV_DONTDUMP, MADV_HUGEPAGE) may also be about a part of a
 * huge page.
 */
#include <asm-generic/errno.h>
#include "base/state.h"
#include "mm/calls.h"
#include "paging/fault.h"
#include "paging/prefetch.h"
#include "space/pt.h"
#include "space/range.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static bool known(int advice)
{
        switch (advice) {
        case MADV_NORMAL:
        case MADV_RANDOM:
        case MADV_SEQUENTIAL:
        case MADV_WILLNEED:
        case MADV_DONTNEED:
        case MADV_DONTNEED_LOCKED:
        case MADV_FREE:
        case MADV_REMOVE:
        case MADV_DONTFORK:
        case MADV_DOFORK:
        case MADV_WIPEONFORK:
        case MADV_KEEPONFORK:
        case MADV_COLD:
        case MADV_PAGEOUT:
        case MADV_DONTDUMP:
        case MADV_DODUMP:
        case MADV_HUGEPAGE:
        case MADV_NOHUGEPAGE:
        case MADV_POPULATE_READ: case MADV_POPULATE_WRITE:
        case MADV_MERGEABLE: case MADV_UNMERGEABLE:
                return true;
        default:
                return false;
        }
}

static int set_flags(uint64_t start, uint64_t end, uint32_t set, uint32_t clear)
{
        struct vma_node *n = vma_find(start);
        if (((n->v.flags & ~clear) | set) == n->v.flags)
                return 0;
        int err = mm_isolate(start, end, VMA_MAX);
        if (err)
                return err;
        n = vma_find(start);
        struct vma v = n->v;
        v.flags = (v.flags & ~clear) | set;
        vma_begin();
        vma_change(n, &v);
        vma_end();
        return 0;
}

/* As Linux, drops no part of a huge page: refuses a range that begins inside a huge page, and
 * leaves a huge page alone if the range ends inside it. */
static int zap(const struct vma *v, uint64_t start, uint64_t end, struct pt_gone *gone)
{
        if (start & (vma_page(v) - 1))
                return -EINVAL;
        end &= ~(vma_page(v) - 1);
        mm_hide(start, end);
        mm_zap(start, end, gone);
        mm_show();
        return 0;
}

static int cool(const struct vma *v, uint64_t start, uint64_t end)
{
        for (uint64_t e; !(v->flags & MAP_SHARED) && mm_part(&start, end, &e); start = e)
                pt_cool(start, e);
        return 0;
}

/* [start, end) lies in v; mm_lock is held. */
static int advise_part(const struct vma *v, uint64_t start, uint64_t end, int advice,
                       struct pt_gone *gone)
{
        bool anonymous = v->file == FILE_NONE && (v->flags & MAP_PRIVATE);
        bool locked = v->flags & VMA_LOCKED;
        switch (advice) {
        case MADV_DONTNEED:
                return locked ? -EINVAL : zap(v, start, end, gone);
        case MADV_DONTNEED_LOCKED:
                return zap(v, start, end, gone);
        case MADV_FREE:
                return locked || !anonymous ? -EINVAL : zap(v, start, end, gone);
        case MADV_REMOVE:
                if (locked || anonymous)
                        return -EINVAL;
                return (v->flags & MAP_SHARED) && (v->prot & PROT_WRITE) ? -EOPNOTSUPP : -EACCES;
        case MADV_COLD:
        case MADV_PAGEOUT:
                return locked || v->order ? -EINVAL : cool(v, start, end);
        case MADV_NORMAL:
                return set_flags(start, end, 0, VMA_ADVICE);
        case MADV_SEQUENTIAL:
                return set_flags(start, end, VMA_SEQUENTIAL, VMA_RANDOM);
        case MADV_RANDOM:
                return set_flags(start, end, VMA_RANDOM, VMA_SEQUENTIAL);
        case MADV_DONTFORK:
                return set_flags(start, end, VMA_DONTFORK, 0);
        case MADV_DOFORK:
                return set_flags(start, end, 0, VMA_DONTFORK);
        case MADV_WIPEONFORK:
                return anonymous ? set_flags(start, end, VMA_WIPEONFORK, 0) : -EINVAL;
        case MADV_KEEPONFORK:
                return set_flags(start, end, 0, VMA_WIPEONFORK);
        default:
                return 0;               /* advice that changes nothing here */
        }
}

/* As Linux: holes are skipped and reported at the end; errors end the walk. */
static int advise(uint64_t start, uint64_t end, int advice, struct pt_gone *gone)
{
        int err = 0, hole = 0;
        for (uint64_t at = start, stop; at < end && !err; at = stop) {
                struct vma_node *n = vma_find(at);
                if (!n || n->v.start > at)
                        hole = -ENOMEM;
                if (!n || n->v.start >= end)
                        break;
                stop = lower(n->v.end, end);
                struct vma v = n->v;    /* n may be split and merged */
                err = advise_part(&v, higher(at, v.start), stop, advice, gone);
        }
        mm_merge(start, end);
        return err ? err : hole;
}

/* --- without mm_lock --- */

/* MADV_POPULATE_*.  Unlike mlock it tells a missing mapping from a forbidden access. */
static int populate(uint64_t start, uint64_t end, bool write)
{
        uint32_t need = write ? PROT_WRITE : PROT_READ;
        struct vma v;
        struct vma_hidden hidden;
        for (; start < end; start = v.end) {
                if (!vma_read(start, &v, &hidden) || v.start > start)
                        return -ENOMEM;
                if (!(v.prot & need))
                        return -EINVAL;
                int err = fault_in_all(start, lower(v.end, end), write);
                if (err)
                        return err;
        }
        return 0;
}

/* Pages that MADV_WILLNEED brings in: those in the far tiers, and those never read from their file.
 * Nothing needs anonymous pages that were never touched.  The entry is only a hint here: it is read
 * without a published fault, so it may be stale. */
static bool worth_bringing(const struct vma *v, uint64_t addr, uint64_t *next)
{
        pte_slot_t *pte = pt_find(addr);
        *next = addr + PAGE_SIZE;
        if (!pte && v->file == FILE_NONE)
                /* No page table: no page up to the next table. */
                *next = (addr | ((1 << 21) - 1)) + 1;
        enum pte_kind k =
                pte ? pte_kind(atomic_load_explicit(pte, memory_order_relaxed)) : PTE_NONE;
        return k == PTE_REMOTE || (k == PTE_NONE && v->file != FILE_NONE);
}

/* At most a quarter of the cache, so that advice does not evict pages in use. */
static int willneed(uint64_t start, uint64_t end)
{
        uint64_t budget = control.nframes / 4;
        int hole = 0;
        struct vma v;
        struct vma_hidden hidden;
        for (; start < end; start = v.end) {
                bool found = vma_read(start, &v, &hidden);
                if (!found || v.start > start)
                        hole = -ENOMEM;
                if (!found || v.start >= end)
                        break;
                if ((v.flags & MAP_SHARED) || !vma_accessible(&v))
                        continue;       /* the host's page cache does its own read-ahead */
                uint64_t at = higher(start, v.start), stop = lower(v.end, end), next, asked = at;
                for (; at < stop && budget; at = next) {
                        if (at >= asked) {
                                asked = lower(lower(stop, at + RANGE_AHEAD),
                                              at + budget * PAGE_SIZE);
                                prefetch_range(at, asked, false);
                        }
                        if (!worth_bringing(&v, at, &next))
                                continue;
                        if (fault_in_all(at, next, false))
                                /* Beyond the end of the file, or no memory: not an error for
                                 * advice. */
                                break;
                        budget--;
                }
        }
        return hole;
}

long sys_madvise(const uint64_t a[6])
{
        uint64_t start = a[0], len = page_align(a[1]), end = start + len;
        int advice = (int)a[2], err;
        struct pt_gone gone = PT_GONE_NONE;

        if (!known(advice) || page_off(start) || (a[1] && !len) || end < start)
                return -EINVAL;
        if (end == start)
                return 0;
        switch (advice) {
        case MADV_POPULATE_READ:
                return populate(start, end, false);
        case MADV_POPULATE_WRITE:
                return populate(start, end, true);
        case MADV_WILLNEED:
                return willneed(start, end);
        }
        lock_take(&mm_lock);
        err = advise(start, end, advice, &gone);
        pt_gone_flush(&gone);
        lock_drop(&mm_lock);
        pt_gone_end(&gone);
        return err;
}
