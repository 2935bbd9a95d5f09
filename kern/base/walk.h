/*
 * Walking the page tables of the program, in kern and in vmrun.  Four levels; the PDPTs of the
 * lower half exist from the start.  Tables come and go: the caller publishes the address first
 * (tables.h, runtime/memory/gmem.c).
 */
#ifndef VMRUN_WALK_H
#define VMRUN_WALK_H

#include <stdatomic.h>
#include <stddef.h>
#include "guest_ram.h"
#include "pager/pte.h"

#define PT_ENTRIES 512

static inline unsigned pt_index(uint64_t addr, unsigned shift)
{
        return (addr >> shift) & (PT_ENTRIES - 1);
}

/* The table that an entry leads to, or NULL. */
static inline pte_slot_t *pt_table(pte_t entry)
{
        return entry & PTE_P ? (pte_slot_t *)window_va(entry & PTE_NUM) : NULL;
}

static inline pte_slot_t *pt_pdpt_entry(uint64_t addr)
{
        return (pte_slot_t *)(WINDOW + PDPT_OFF(addr >> 39)) + pt_index(addr, 30);
}

/* The directory entry for addr, or NULL if its directory does not exist.  Acquire: a table that is
 * found is seen zeroed. */
static inline pte_slot_t *pt_directory(uint64_t addr)
{
        pte_slot_t *pd = pt_table(atomic_load_explicit(pt_pdpt_entry(addr), memory_order_acquire));
        return pd ? pd + pt_index(addr, 21) : NULL;
}

/* The entry for addr, or NULL if its page table does not exist. */
static inline pte_slot_t *pt_walk(uint64_t addr)
{
        pte_slot_t *pde = pt_directory(addr);
        pte_slot_t *pt = pde ? pt_table(atomic_load_explicit(pde, memory_order_acquire)) : NULL;
        return pt ? pt + pt_index(addr, 12) : NULL;
}

#endif
