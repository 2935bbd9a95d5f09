/*
 * Page tables of the program: walks and range operations (pt.h).
 *
 * Tables are added by compare-and-swap, by any vCPU.  Only pt_zap takes them away: it unlinks them,
 * flushes, and waits for faults that may still be walking.  Only then are they reused, and only as
 * page tables.
 */
#include <asm-generic/errno.h>
#include "base/flush.h"
#include "base/pool.h"
#include "base/state.h"
#include "base/string.h"
#include "pager/pager.h"
#include "space/pt.h"

void pt_wait_faults(uint64_t start, uint64_t end)
{
        /* The caller has changed the VMA tree; a fault publishes before it reads the tree
         * (paging/fault.c).  Full barriers on both sides, so one of the two sees the other.  [I] */
        atomic_thread_fence(memory_order_seq_cst);
        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
        const uint64_t run = FAULT_AROUND * PAGE_SIZE;
        start &= ~(run - 1);
        end = (end + run - 1) & ~(run - 1);
        for (uint32_t i = 0; i < n; i++) {
                struct vcpu *v = vcpu_block(i);
                /* bounded: a published fault does not sleep */
                for (unsigned spins = 0;; spins++) {
                        uint64_t at = atomic_load_explicit(&v->faulting, memory_order_acquire);
                        if (at == 0 || at - 1 < start || at - 1 >= end)
                                break;
                        env_relax(spins);
                }
        }
}

/* Calls visit for each page-table entry of [start, end) whose table exists. */
#define for_each_entry(pte, addr, start, end)                                                    \
        for (uint64_t addr = (start); addr < (end); addr += PAGE_SIZE)                           \
                for (pte_slot_t *pte = pt_next(&addr, (end)); pte; pte = NULL)

/* Frames that no entry names any more, but that a TLB may still reach. */
struct detached { uint32_t n; frame_t frame[256]; bool flush; };

static void discard(struct detached *d)
{
        if (d->flush)
                flush_all();
        for (uint32_t i = 0; i < d->n; i++)
                frame_discard(&pager, &vcpu_self.frames, d->frame[i]);
        d->n = 0;
        d->flush = false;
}

/* Unlinks the page tables that lie wholly in [start, end); all their entries are NONE.  They form a
 * list through their first word. */
static void free_tables(uint64_t start, uint64_t end)
{
        pte_slot_t *unlinked[64];
        unsigned n = 0;

        for (uint64_t a = (start + (1 << 21) - 1) & ~((1ull << 21) - 1); a + (1 << 21) <= end; ) {
                pte_slot_t *pde = pt_directory(a);
                pte_slot_t *pt = pde ? pt_table(atomic_load(pde)) : NULL;
                if (pt) {
                        atomic_store(pde, 0);
                        unlinked[n++] = pt;
                }
                a += pde ? 1 << 21 : (1 << 30) - (a & ((1 << 30) - 1));
                if (n == sizeof(unlinked) / sizeof(unlinked[0]) || (n > 0 && a + (1 << 21) > end)) {
                        flush_all();                    /* no paging-structure cache leads there */
                        pt_wait_faults(start, end);     /* no fault still walks there */
                        while (n > 0)
                                pool_page_free(POOL_PT, unlinked[--n]);
                }
        }
}

uint64_t pt_zap(uint64_t start, uint64_t end)
{
        struct detached d = { .n = 0 };
        uint64_t charged = 0;

        for_each_entry(pte, addr, start, end) {
                pte_t old;
                if (atomic_load_explicit(pte, memory_order_relaxed) == 0)
                        continue;
                frame_t f = page_detach(&pager, pte, &old);
                charged += (old & PTE_CHARGED) != 0;
                d.flush |= old & PTE_P;
                if (f != FRAME_NONE)
                        d.frame[d.n++] = f;
                if (d.n == sizeof(d.frame) / sizeof(d.frame[0]))
                        discard(&d);
        }
        discard(&d);
        free_tables(start, end);
        return charged;
}

void pt_protect(uint64_t start, uint64_t end, pte_t prot)
{
        bool flush = false;

        for_each_entry(pte, addr, start, end)
                flush |= page_protect(&pager, pte, prot);
        if (flush)
                flush_all();
}

int pt_move(uint64_t from, uint64_t to, uint64_t len)
{
        bool flush = false;

        /* First all tables, so that nothing can fail once pages move. */
        for_each_entry(pte, addr, from, from + len)
                if (!pt_make(addr - from + to))
                        return -ENOMEM;
        for_each_entry(pte, addr, from, from + len)
                flush |= page_move(&pager, pte, pt_find(addr - from + to));
        if (flush)
                flush_all();
        free_tables(from, from + len);
        return 0;
}

void pt_resident(uint64_t start, uint64_t end, uint8_t *vec)
{
        memset(vec, 0, (end - start) / PAGE_SIZE);
        for_each_entry(pte, addr, start, end) {
                pte_t p = atomic_load_explicit(pte, memory_order_relaxed);
                enum pte_kind k = pte_kind(p);
                if (k == PTE_PRESENT && page_is_fresh(p, &pager.frames[pte_num(p) - pager.pfn0],
                                                      control.shadow_paging))
                        continue;
                vec[(addr - start) / PAGE_SIZE] =
                        k == PTE_PRESENT || k == PTE_ARENA || k == PTE_HELD ? PT_RESIDENT
                        : k == PTE_NONE                                     ? 0
                                                                            : PT_FAR;
        }
}

uint64_t pt_count_arena(uint64_t start, uint64_t end)
{
        uint64_t n = 0;
        for_each_entry(pte, addr, start, end)
                n += pte_kind(atomic_load_explicit(pte, memory_order_relaxed)) == PTE_ARENA;
        return n;
}

void pt_cool(uint64_t start, uint64_t end)
{
        for_each_entry(pte, addr, start, end)
                page_cool(&pager, pte);
        env_flush_begin();
}

uint64_t pt_set_locked(uint64_t start, uint64_t end, bool locked)
{
        uint64_t changed = 0;

        for_each_entry(pte, addr, start, end)
                changed += page_set_locked(&pager, pte, locked);
        return changed;
}
