/*
 * What memory costs: charges against the commit limit, and resource limits.  Charges need no lock.
 */
#ifndef VMRUN_ACCOUNT_H
#define VMRUN_ACCOUNT_H

#include "space/vma.h"

/* Reads CONTROL; before anything else here. */
void mm_account_init(void);

/* Pages charged now, and the limit, in pages (statistics, leak check). */
uint64_t mm_charged(void);
uint64_t mm_limit(void);

bool mm_charge(uint64_t pages);
void mm_uncharge(uint64_t pages);

/* First touch (NONE -> anything) of a page in a VMA with VMA_TOUCH, before it is installed with
 * PTE_CHARGED.  0, or -ENOMEM if cache and far tier are full.  If it is then not installed, or
 * evicted to NONE, mm_uncharge(1) gives the charge back. */
int mm_charge_page(void);

/* How v is paid for: VMA_CHARGED, VMA_TOUCH or 0. */
uint32_t mm_payment(const struct vma *v);

/* RLIMIT_AS and RLIMIT_DATA, for so many pages more that look like v, and so many fewer of any
 * kind. */
bool mm_may_expand(const struct vma *v, uint64_t pages, uint64_t fewer);

/* RLIMIT_MEMLOCK (over_limit if exceeded) and the cache's own share (-ENOMEM). */
int mm_may_lock(uint64_t pages, int over_limit);

/* mlockall(MCL_FUTURE): VMA_LOCKED for whatever is mapped from now on, else 0; and whether that is
 * not populated. */
extern uint32_t mm_lock_future __attribute__((visibility("hidden")));
extern bool mm_lock_onfault __attribute__((visibility("hidden")));

#endif
