/*
 * What memory costs: charges against the commit limit, and resource limits.  Charges need no lock.
 */
#ifndef VMRUN_ACCOUNT_H
#define VMRUN_ACCOUNT_H

#include "space/vma.h"

/* Reads CONTROL.  Called before any other function here. */
void mm_account_init(void);

/* Pages charged now, and the limit, in pages.  The limit grows when a node is added. */
uint64_t mm_charged(void);
uint64_t mm_limit(void);

bool mm_charge(uint64_t pages);
void mm_uncharge(uint64_t pages);

/* Charges the first touch (NONE -> anything) of a page in a VMA with VMA_TOUCH, before it is
 * installed with PTE_CHARGED.  0, or -ENOMEM if cache and far tiers are full.  If the page is then
 * not installed, or is evicted to NONE, mm_uncharge(1) gives the charge back. */
int mm_charge_page(void);

/* How v is paid for: VMA_CHARGED, VMA_TOUCH or 0. */
uint32_t mm_payment(const struct vma *v);

/* RLIMIT_AS and RLIMIT_DATA: may there be `pages` more pages of v's kind, with `fewer` pages of any
 * kind less? */
bool mm_may_expand(const struct vma *v, uint64_t pages, uint64_t fewer);

/* RLIMIT_MEMLOCK (over_limit if exceeded) and the cache's own share (-ENOMEM). */
int mm_may_lock(uint64_t pages, int over_limit);

/* mlockall(MCL_FUTURE): VMA_LOCKED if what is mapped from now on is to be locked, else 0; and
 * whether it is then not populated. */
extern uint32_t mm_lock_future __attribute__((visibility("hidden")));
extern bool mm_lock_onfault __attribute__((visibility("hidden")));

#endif
