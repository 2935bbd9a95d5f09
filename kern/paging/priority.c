/*
 * Priorities: which pages are evicted first (vmg_priority).
 *
 * The priority is two bits of the entry, which travel with the page.  The hand reads them, and
 * nothing else does (pager/clock.c).  An entry is changed by compare-and-swap, so no lock is
 * needed: a thread that changes the entry at that time, or evicts the page, looks again.
 */
#include <asm-generic/errno.h>
#include "base/exit.h"
#include "base/state.h"
#include "base/tables.h"
#include "pager/pager.h"
#include "paging/priority.h"
#include "space/pt.h"
#include "space/range.h"

#define TABLE_SIZE (1ul << 21)

/* 1; 0: there is no page; -EAGAIN: it is on its way.  OUT *table: is there a page table? */
static int set_one(uint64_t addr, pte_t priority, bool *table)
{
        pte_t seen = 0;
        int ret = 0;

        pt_publish(addr);
        pte_slot_t *pte = pt_find(addr);
        if (pte)
                ret = page_set_priority(pte, priority, &seen);
        pt_unpublish();
        *table = pte;
        if (ret == -EAGAIN)             /* a thread waits for it, so it comes */
                page_wait(pte, seen);
        return ret;
}

/* Within a VMA.  The VMA may change meanwhile: only the entry counts. */
static int64_t set_part(uint64_t start, uint64_t end, pte_t priority)
{
        int64_t done = 0;
        bool table;

        for (uint64_t addr = start, next; addr < end; addr = next) {
                int ret = set_one(addr, priority, &table);
                next = ret == -EAGAIN ? addr
                       : table        ? addr + PAGE_SIZE
                                      : (addr & ~(TABLE_SIZE - 1)) + TABLE_SIZE;
                done += ret == 1;
                if (atomic_load_explicit(&control.stopping, memory_order_relaxed))
                        vmexit(EXIT_PAUSE, 0, 0, 0);
        }
        return done;
}

int64_t priority_set(uint64_t start, uint64_t end, pte_t priority)
{
        struct vma v;
        struct vma_hidden hidden;
        int64_t done = 0;

        while (start < end && vma_read(start, &v, &hidden) && v.start < end) {
                start = higher(start, v.start);
                for (uint64_t e, stop = lower(end, v.end); mm_part(&start, stop, &e); start = e)
                        done += set_part(start, e, priority);
                start = v.end;
        }
        return done;
}
