/*
 * Page tables: walking them and adding to them (tables.h).
 *
 * Tables are added by compare-and-swap, by any vCPU.  Only pt_zap() takes them away (space/pt.c).
 */
#include "base/pool.h"
#include "base/tables.h"

/* The table an entry points to, made if it is missing.  Release: a walk that finds the table finds
 * it zeroed. */
static pte_slot_t *table_make(pte_slot_t *entry)
{
        pte_t e = atomic_load_explicit(entry, memory_order_acquire);
        if (e & PTE_P)
                return pt_table(e);
        void *page = pool_page(POOL_PT);
        if (!page)
                return NULL;
        e = 0;
        if (!atomic_compare_exchange_strong(entry, &e, window_gpa(page) | PTE_TABLE | PTE_ACCESS)) {
                /* another vCPU made the table; ours was never visible */
                pool_page_free(POOL_PT, page);
                return pt_table(e);
        }
        return page;
}

pte_slot_t *pt_find(uint64_t addr) { return pt_walk(addr); }

pte_slot_t *pt_make(uint64_t addr)
{
        pte_slot_t *pd = table_make(pt_pdpt_entry(addr));
        pte_slot_t *pt = pd ? table_make(pd + pt_index(addr, 21)) : NULL;
        return pt ? pt + pt_index(addr, 12) : NULL;
}

bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len)
{
        for (uint64_t off = 0; off < len; off += 1 << 21) {
                pte_slot_t *pd = table_make(pt_pdpt_entry(va + off));
                if (!pd)
                        return false;
                atomic_store(pd + pt_index(va + off, 21),
                             pte_make_window(gpa + off, control.level));
        }
        return true;
}

pte_slot_t *pt_next(uint64_t *addr, uint64_t end)
{
        uint64_t a = *addr;
        while (a < end) {
                pte_slot_t *pde = pt_directory(a);
                if (!pde) {
                        a = (a | ((1ull << 30) - 1)) + 1;
                        continue;
                }
                pte_slot_t *pt = pt_table(atomic_load_explicit(pde, memory_order_acquire));
                if (pt) {
                        *addr = a;
                        return pt + pt_index(a, 12);
                }
                a = (a | ((1ull << 21) - 1)) + 1;
        }
        *addr = end;
        return NULL;
}
