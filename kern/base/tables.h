/*
 * Page tables of the program: finding entries, and adding tables.  The pager core (pager/) changes
 * the state of a page; the functions here find its entry.
 */
#ifndef VMRUN_TABLES_H
#define VMRUN_TABLES_H

#include "base/kern.h"
#include "base/walk.h"

/* The entry for addr, or NULL if its page table does not exist. */
pte_slot_t *pt_find(uint64_t addr);
/* As pt_find(), but makes missing tables; NULL if the pool is used up. */
pte_slot_t *pt_make(uint64_t addr);

/* The entry at *addr.  Where no table exists, the entry at the next address below end that has a
 * table; *addr becomes that address.  NULL: there is none. */
pte_slot_t *pt_next(uint64_t *addr, uint64_t end);

/* Maps 2 MiB-aligned guest-physical memory at a window address (a slab of a memory tier).
 * False: the pool is used up. */
bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len);

/* A fault may install pages it was not asked for, but only in the aligned run of this many pages
 * around its own. */
#define FAULT_AROUND 16

/* A vCPU that walks to an entry, or changes one, publishes the address first (full barrier) and
 * withdraws it afterwards: no table on the way is reused meanwhile (pt_wait_faults).  A vCPU
 * publishes one address at a time and does not sleep while it is published.  The host publishes its
 * addresses in this way too (runtime/memory/gmem.c). */
static inline void pt_publish(uint64_t addr) { atomic_exchange(&vcpu_self.faulting, addr + 1); }

static inline void pt_unpublish(void)
{
        atomic_store_explicit(&vcpu_self.faulting, 0, memory_order_release);
}

#endif
