/*
 * mprotect.
 */
#include <asm-generic/errno.h>
#include "base/charge.h"
#include "base/state.h"
#include "mm/calls.h"
#include "paging/populate.h"
#include "space/account.h"
#include "space/pt.h"
#include "space/range.h"

/* How v is paid for once it has prot.  Payment never becomes less; see space/account.c. */
static uint32_t new_payment(const struct vma *v, uint32_t prot)
{
        uint32_t old = v->flags & (VMA_CHARGED | VMA_TOUCH);
        struct vma changed = *v;
        changed.prot = prot;
        return prot & PROT_WRITE && !(old & VMA_CHARGED) ? mm_payment(&changed) : old;
}

/* One VMA, or its part in [start, end).  The range is hidden. */
static int protect_part(struct vma_node *n, uint64_t start, uint64_t end, uint32_t prot,
                        struct pt_gone *gone)
{
        struct vma v = n->v;
        if (prot & v.flags >> 24 & PROT_ALL)    /* VMA_DENY */
                return -EACCES;
        if (prot == v.prot)
                return 0;
        if (prot && mm_reserved(start, end))
                return -ENOMEM;

        uint64_t pages = page_count(end - start);
        uint32_t paid = v.flags & (VMA_CHARGED | VMA_TOUCH), pay = new_payment(&v, prot);
        struct vma after = v;
        after.prot = prot;
        /* RLIMIT_DATA as Linux checks it: would mapping this much more fail only because it is to
         * be writable? */
        if ((prot & PROT_WRITE) && !mm_may_expand(&after, pages, 0) && mm_may_expand(&v, pages, 0))
                return -ENOMEM;
        if (pay != paid && pay == VMA_CHARGED && !mm_pay(pages))
                return -ENOMEM;
        int err = mm_isolate(start, end, VMA_MAX);
        if (err) {
                if (pay != paid && pay == VMA_CHARGED)
                        mm_uncharge(pages);
                return err;
        }
        if (!paid && pay == VMA_TOUCH)
                /* Pages read from the file so far cost nothing; pages touched from now on are
                 * charged. */
                mm_zap(start, end, gone);

        n = vma_find(start);
        after = n->v;
        after.prot = prot;
        after.flags = (after.flags & ~(VMA_CHARGED | VMA_TOUCH)) | pay;
        vma_begin();
        vma_change(n, &after);
        vma_end();
        pte_t bits = pte_prot(prot & PROT_READ, prot & PROT_WRITE, prot & PROT_EXEC);
        for (uint64_t e; mm_part(&start, end, &e); start = e)
                pt_protect(start, e, bits, gone);
        return 0;
}

/* All of [start, end) up to the first hole or error.  *locked: part of it is locked and can now be
 * accessed. */
static int protect(uint64_t start, uint64_t end, uint32_t prot, bool *locked, struct pt_gone *gone)
{
        int err = 0;
        mm_hide(start, end);
        for (uint64_t at = start, stop; at < end && !err; at = stop) {
                struct vma_node *n = vma_find(at);
                if (!n || n->v.start > at) {
                        err = -ENOMEM;
                        break;
                }
                stop = lower(n->v.end, end);
                *locked |= (n->v.flags & VMA_LOCKED) && prot;
                err = protect_part(n, at, stop, prot, gone);
        }
        mm_merge(start, end);
        mm_show();
        return err;
}

long sys_mprotect(const uint64_t a[6])
{
        uint64_t start = a[0], len = page_align(a[1]), end = start + len;
        uint32_t grows = (uint32_t)a[2] & (PROT_GROWSDOWN | PROT_GROWSUP);
        uint64_t prot = a[2] & ~(uint64_t)grows;
        struct pt_gone gone = PT_GONE_NONE;
        bool locked = false;
        int err = 0;

        if (grows == (PROT_GROWSDOWN | PROT_GROWSUP) || page_off(start))
                return -EINVAL;
        if (!a[1])
                return 0;
        if (end <= start)
                return -ENOMEM;
        if (prot & ~(uint64_t)(PROT_ALL | PROT_SEM))
                return -EINVAL;

        lock_take(&mm_lock);
        struct vma_node *n = vma_find(start);
        if (!n || n->v.start >= end)
                err = -ENOMEM;
        else if (grows == PROT_GROWSDOWN) {
                start = n->v.start;
                if (!(n->v.flags & MAP_GROWSDOWN))
                        err = -EINVAL;
        } else if (n->v.start > start)
                err = -ENOMEM;
        else if (grows)                 /* no VMA grows upwards */
                err = -EINVAL;
        if (!err)
                err = protect(start, end, (uint32_t)prot & PROT_ALL, &locked, &gone);
        pt_gone_flush(&gone);
        lock_drop(&mm_lock);
        pt_gone_end(&gone);

        mm_report_refusals();
        if (locked)
                mm_populate_locked(start, end);
        return err;
}
