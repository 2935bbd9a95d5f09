/*
 * Page tables of the program: walks and range operations (pt.h).
 *
 * Tables are added by compare-and-swap, by any vCPU.  Only pt_zap and pt_move take them away: they
 * unlink them; pt_gone_end flushes, and waits for faults that may still be walking.  Only then are
 * they reused, and only as page tables.
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

/* The last flush that an operation began; guarded by mm_lock. */
static uint64_t last_flush;

void pt_gone_flush(struct pt_gone *gone)
{
        /* It also empties the paging-structure caches, which may lead to the tables. */
        if (gone->pages.flush || gone->ntables) {
                last_flush = env_flush_begin();
                count(CNT_BEGUN_RANGE);
                flush_self();
        }
        gone->epoch = last_flush;
}

void pt_gone_end(struct pt_gone *gone)
{
        if (!gone->epoch)
                pt_gone_flush(gone);
        flush_wait(gone->epoch);
        if (gone->ntables)
                pt_wait_faults(gone->start, gone->end); /* no fault still walks there */
        while (gone->ntables > 0)
                pool_page_free(POOL_PT, gone->table[--gone->ntables]);
        dropped_free(&pager, &vcpu_self.frames, &gone->pages);
        gone->epoch = 0;
}

/* Unlinks the page tables that lie wholly in [start, end); all their entries are NONE. */
static void unlink_tables(uint64_t start, uint64_t end, struct pt_gone *gone)
{
        for (uint64_t a = (start + (1 << 21) - 1) & ~((1ull << 21) - 1); a + (1 << 21) <= end; ) {
                pte_slot_t *pde = pt_directory(a);
                pte_slot_t *pt = pde ? pt_table(atomic_load(pde)) : NULL;
                if (pt) {
                        if (gone->ntables == PT_GONE_TABLES)
                                pt_gone_end(gone);
                        atomic_store(pde, 0);
                        if (!gone->ntables || a < gone->start)
                                gone->start = a;
                        if (!gone->ntables || a + (1 << 21) > gone->end)
                                gone->end = a + (1 << 21);
                        gone->table[gone->ntables++] = pt;
                }
                a += pde ? 1 << 21 : (1 << 30) - (a & ((1 << 30) - 1));
        }
}

/* Frames that may wait for a flush: so many that its cost is nothing beside theirs, and so few that
 * others need not wait for frames. */
#define DROPPED_MOST 32768

uint64_t pt_zap(uint64_t start, uint64_t end, struct pt_gone *gone)
{
        uint64_t charged = 0;

        for_each_entry(pte, addr, start, end) {
                if (atomic_load_explicit(pte, memory_order_relaxed) == 0)
                        continue;
                pte_t old = page_drop(&pager, &vcpu_self.frames, pte, &gone->pages);
                charged += (old & PTE_CHARGED) != 0;
                if (gone->pages.n == DROPPED_MOST)
                        pt_gone_end(gone);
        }
        unlink_tables(start, end, gone);
        return charged;
}

void pt_protect(uint64_t start, uint64_t end, pte_t prot, struct pt_gone *gone)
{
        for_each_entry(pte, addr, start, end)
                gone->pages.flush |= page_protect(&pager, pte, prot);
}

int pt_move(uint64_t from, uint64_t to, uint64_t len)
{
        struct pt_gone gone = PT_GONE_NONE;

        /* First all tables, so that nothing can fail once pages move. */
        for_each_entry(pte, addr, from, from + len)
                if (!pt_make(addr - from + to))
                        return -ENOMEM;
        for_each_entry(pte, addr, from, from + len)
                gone.pages.flush |= page_move(&pager, pte, pt_find(addr - from + to));
        unlink_tables(from, from + len, &gone);
        pt_gone_end(&gone);
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
                page_cool(&pager, &vcpu_self.frames, pte);
}

uint64_t pt_set_locked(uint64_t start, uint64_t end, bool locked)
{
        uint64_t changed = 0;

        for_each_entry(pte, addr, start, end)
                changed += page_set_locked(&pager, &vcpu_self.frames, pte, locked);
        return changed;
}
