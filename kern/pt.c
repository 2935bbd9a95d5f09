/*
 * Page tables of the program: walks and range operations (pt.h).
 *
 * Tables are added by compare-and-swap, by any vCPU.  They are taken away by pt_zap alone: unlink, flush, wait for the faults that may
 * still be walking, and only then reuse, and then only as a page table.
 */
#include <asm-generic/errno-base.h>
#include "cpu.h"
#include "kern.h"
#include "pt.h"

#define ENTRIES 512
#define TABLE_FLAGS (PTE_P | PTE_W | PTE_ACCESS | PTE_A)

static inline unsigned index_at(uint64_t addr, unsigned shift) { return (addr >> shift) & (ENTRIES - 1); }

static inline pte_slot_t *table_of(pte_t entry)
{
        return entry & PTE_P ? window_va(entry & PTE_NUM) : NULL;
}

static inline pte_slot_t *pdpt_entry(uint64_t addr)
{
        return (pte_slot_t *)(WINDOW + PDPT_OFF(addr >> 39)) + index_at(addr, 30);
}

/* The table an entry points to, made if it is missing.  Release: who finds the table finds it zeroed. */
static pte_slot_t *table_make(pte_slot_t *entry)
{
        pte_t e = atomic_load_explicit(entry, memory_order_acquire);
        if (e & PTE_P)
                return table_of(e);
        void *page = pool_page(POOL_PT);
        if (!page)
                return NULL;
        e = 0;
        if (!atomic_compare_exchange_strong(entry, &e, window_gpa(page) | TABLE_FLAGS)) {
                pool_page_free(POOL_PT, page);  /* another vCPU made it; nobody has seen ours */
                return table_of(e);
        }
        return page;
}

static pte_slot_t *pd_entry(uint64_t addr)
{
        pte_slot_t *pd = table_of(atomic_load_explicit(pdpt_entry(addr), memory_order_acquire));
        return pd ? pd + index_at(addr, 21) : NULL;
}

pte_slot_t *pt_find(uint64_t addr)
{
        pte_slot_t *pde = pd_entry(addr);
        pte_slot_t *pt = pde ? table_of(atomic_load_explicit(pde, memory_order_acquire)) : NULL;
        return pt ? pt + index_at(addr, 12) : NULL;
}

pte_slot_t *pt_make(uint64_t addr)
{
        pte_slot_t *pd = table_make(pdpt_entry(addr));
        pte_slot_t *pt = pd ? table_make(pd + index_at(addr, 21)) : NULL;
        return pt ? pt + index_at(addr, 12) : NULL;
}

bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len)
{
        for (uint64_t off = 0; off < len; off += 1 << 21) {
                pte_slot_t *pd = table_make(pdpt_entry(va + off));
                if (!pd)
                        return false;
                atomic_store(pd + index_at(va + off, 21), window_pde(gpa + off, control.level, 0));
        }
        return true;
}

void pt_wait_faults(uint64_t start, uint64_t end)
{
        /* The caller changed the VMA tree before; a fault publishes before it reads the tree (fault.c).  Full barriers on
         * both sides: one of the two sees the other.  [I] */
        atomic_thread_fence(memory_order_seq_cst);
        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
        const uint64_t run = FAULT_AROUND * PAGE_SIZE;
        start &= ~(run - 1);
        end = (end + run - 1) & ~(run - 1);
        for (uint32_t i = 0; i < n; i++) {
                struct vcpu *v = vcpu_block(i);
                for (unsigned spins = 0;; spins++) {    /* bounded: a published fault does not sleep */
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

pte_slot_t *pt_next(uint64_t *addr, uint64_t end)
{
        uint64_t a = *addr;
        while (a < end) {
                pte_slot_t *pde = pd_entry(a);
                if (!pde) {
                        a = (a | ((1ull << 30) - 1)) + 1;
                        continue;
                }
                pte_slot_t *pt = table_of(atomic_load_explicit(pde, memory_order_acquire));
                if (pt) {
                        *addr = a;
                        return pt + index_at(a, 12);
                }
                a = (a | ((1ull << 21) - 1)) + 1;
        }
        *addr = end;
        return NULL;
}

/* Frames whose entries are gone but which a TLB may still reach. */
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

/* Unlinks the page tables that lie wholly in [start, end); all their entries are NONE.  They form a list through their first word. */
static void free_tables(uint64_t start, uint64_t end)
{
        pte_slot_t *unlinked[64];
        unsigned n = 0;

        for (uint64_t a = (start + (1 << 21) - 1) & ~((1ull << 21) - 1); a + (1 << 21) <= end; ) {
                pte_slot_t *pde = pd_entry(a);
                pte_slot_t *pt = pde ? table_of(atomic_load(pde)) : NULL;
                if (pt) {
                        atomic_store(pde, 0);
                        unlinked[n++] = pt;
                }
                a += pde ? 1 << 21 : (1 << 30) - (a & ((1 << 30) - 1));
                if (n == sizeof unlinked / sizeof unlinked[0] || (n > 0 && a + (1 << 21) > end)) {
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
                if (d.n == sizeof d.frame / sizeof d.frame[0])
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
                enum pte_kind k = pte_kind(atomic_load_explicit(pte, memory_order_relaxed));
                vec[(addr - start) / PAGE_SIZE] = k == PTE_PRESENT || k == PTE_ARENA || k == PTE_HELD ? PT_RESIDENT : k == PTE_NONE ? 0 : PT_FAR;
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
