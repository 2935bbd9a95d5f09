/*
 * Charges against the commit limit: pages that the program may use, whether or not they have a
 * frame or a slot yet.  space/account.c says which pages are charged.  Charges need no lock.
 */
#ifndef VMRUN_CHARGE_H
#define VMRUN_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

/* Called before any other function here. */
void mm_charge_init(void);

/* Pages charged now, and the limit, in pages.  The limit grows when a node is added. */
uint64_t mm_charged(void);
uint64_t mm_limit(void);

/* Charges pages.  False: the limit does not allow that. */
bool mm_charge(uint64_t pages);
void mm_uncharge(uint64_t pages);

/* Charges the first touch (NONE -> anything) of a page in a VMA with VMA_TOUCH, before it is
 * installed with PTE_CHARGED.  0, or -ENOMEM if cache and far tiers are full.  If the page is then
 * not installed, or is evicted to NONE, mm_uncharge(1) gives the charge back. */
int mm_charge_page(void);

#endif
