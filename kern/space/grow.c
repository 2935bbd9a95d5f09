/*
 * Stacks, and other VMAs that grow down when they are touched.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/kern.h"
#include "base/state.h"
#include "space/account.h"
#include "space/grow.h"
#include "space/range.h"

/* *unpaid: the commit limit does not allow it. */
static int grow_down(struct vma_node *n, uint64_t addr, bool *unpaid)
{
        struct vma v = vma_part(n->v, addr, n->v.end);
        uint64_t more = page_count(n->v.start - addr);
        struct vma_node *below = vma_before(n->v.start);

        if (addr < control.mmap_min || mm_reserved(addr, n->v.start))
                return -ENOMEM;
        if (below && below->v.end > addr)
                return -ENOMEM;
        if (below && !(below->v.flags & MAP_GROWSDOWN) && vma_accessible(&below->v) &&
            addr - below->v.end < STACK_GUARD)
                return -ENOMEM;
        if (v.end - v.start > control.rlimit_stack || !mm_may_expand(&v, more, 0))
                return -ENOMEM;
        if ((v.flags & VMA_LOCKED) && mm_may_lock_more(&v, more, -ENOMEM))
                return -ENOMEM;
        *unpaid = (v.flags & VMA_CHARGED) && !mm_charge(more);
        if (*unpaid)
                return -ENOMEM;
        vma_begin();
        vma_change(n, &v);
        vma_end();
        mm_merge(v.start, v.start);
        return 0;
}

int mm_grow_stack(uint64_t addr)
{
        bool unpaid = false;
        int err = -EFAULT;

        addr &= PAGE_MASK;
        lock_take(&mm_lock);
        struct vma_node *n = vma_find(addr);
        if (n && n->v.start <= addr)
                err = 0;
        else if (n && (n->v.flags & MAP_GROWSDOWN))
                err = grow_down(n, addr, &unpaid);
        lock_drop(&mm_lock);
        if (unpaid)
                mm_report_stack();
        return err;
}
