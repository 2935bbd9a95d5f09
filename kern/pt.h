/*
 * Page tables of the program: walking them and range operations on them.  Four levels; the lower-half PDPTs exist from
 * the start.  The pager core (pager/) decides what happens to one page; this file finds the entries.
 *
 * Callers of the range operations hold mm_lock, have changed the VMA tree and called pt_wait_faults().  Ranges are page-aligned.
 */
#ifndef VMRUN_PT_H
#define VMRUN_PT_H

#include "kern.h"

/* The entry for addr, or NULL if its page table does not exist. */
pte_slot_t *pt_find(uint64_t addr);
/* Same, making missing tables; NULL if the pool is used up. */
pte_slot_t *pt_make(uint64_t addr);

/* The entry at *addr or, where no table exists, at the next address below end that has one, which goes to *addr; NULL: there is none. */
pte_slot_t *pt_next(uint64_t *addr, uint64_t end);

/* Maps 2 MiB-aligned guest-physical memory at a window address (a slab of a memory tier).  False: the pool is used up. */
bool pt_map_window(uint64_t va, uint64_t gpa, uint64_t len);

/* A fault may install pages it was not asked for, but only in the aligned run of this many pages around its own. */
#define FAULT_AROUND 16

/* Who walks to an entry, or changes one, publishes its address first (full barrier) and takes it back after: no table on the way is
 * reused meanwhile (pt_wait_faults).  One address a vCPU; nobody sleeps while it stands.  The host does the same (gmem.c). */
static inline void pt_publish(uint64_t addr) { atomic_exchange(&vcpu_self.faulting, addr + 1); }
static inline void pt_unpublish(void) { atomic_store_explicit(&vcpu_self.faulting, 0, memory_order_release); }

/* Waits until no vCPU has a fault published whose aligned run meets [start, end). */
void pt_wait_faults(uint64_t start, uint64_t end);

/* Drops every page (frames, slots, arena entries) and frees empty tables.  After it returns no TLB holds any of them.
 * Returns how many of them carried a charge of their own (PTE_CHARGED), for the caller to give back. */
uint64_t pt_zap(uint64_t start, uint64_t end);
/* New protection for what is instantiated; prot: PTE_PROT bits.  Flushes if needed. */
void pt_protect(uint64_t start, uint64_t end, pte_t prot);
/* Moves [from, from+len) to [to, to+len), which holds nothing; keeps contents.  0, or -ENOMEM with everything as before. */
int pt_move(uint64_t from, uint64_t to, uint64_t len);
/* One byte a page: PT_RESIDENT, PT_FAR, or 0 for one that was never there or was dropped. */
#define PT_RESIDENT 1
#define PT_FAR 2
void pt_resident(uint64_t start, uint64_t end, uint8_t *vec);
/* How many entries of the range lead to the arena. */
uint64_t pt_count_arena(uint64_t start, uint64_t end);
/* MADV_COLD / MADV_PAGEOUT: make pages the next ones to be evicted. */
void pt_cool(uint64_t start, uint64_t end);
/* mlock: sets or clears FRAME_LOCKED on resident frames; returns how many frames changed. */
uint64_t pt_set_locked(uint64_t start, uint64_t end, bool locked);
/* UPCALL_LEAKCHECK: counts frames, slots and pins (of which so many are to be) against the page tables; returns the number of inconsistencies. (leak.c) */
int64_t leak_check(uint64_t pins);

/* Faults pages in, as a program access would, without publishing beforehand (it does so itself); caller holds no lock.  write: for write access.
 * 0; -EFAULT: no VMA or no permission; -ENOMEM: no memory; -EIO.  (fault.c) */
int fault_in(uint64_t start, uint64_t end, bool write);
/* The same for a system call, which may take hours: the threads can be stopped meanwhile. */
int fault_in_all(uint64_t start, uint64_t end, bool write);

#endif
