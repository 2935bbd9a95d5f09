/*
 * Parts of the pager's eviction that only its own files share: evict.c has them, clock.c calls
 * them.
 */
#ifndef VMRUN_EVICT_H
#define VMRUN_EVICT_H

#include "abi_stats.h"
#include "pager/pager.h"

/* HELD has no A: the program cannot use it. */
static inline bool is_cold(pte_t p, uint64_t w) { return !(p & PTE_A) && !(w & FRAME_USED); }

/* May the page go?  Not a hot one.  A page that was brought in ahead has until the cold hand's
 * second visit to be used, and one of high priority is hot before it goes.  Looked at under a claim
 * too: a hint may be of a page that had the frame before. */
static inline bool may_go(pte_t p, uint64_t w)
{
        return is_cold(p, w) && !(w & FRAME_HOT) && ((w & FRAME_OLD) || !(p & PTE_PREF)) &&
               ((w & FRAME_WAS) || !(p & PTE_HIGH));
}

/* The entry that names frame n, if it is in a state that can be evicted. */
static inline pte_slot_t *entry_of(struct pager *pg, frame_t n, pte_t *p)
{
        pte_slot_t *pte = atomic_load(&pg->frames[n].pte);
        if (!pte)
                return NULL;
        *p = atomic_load(pte);
        pte_t k = *p & (PTE_P | PTE_STATE);
        return (k == (PTE_P | PTE_ST_FRAME) || k == PTE_ST_HELD) && pte_num(*p) == pg->pfn0 + n
                       ? pte
                       : NULL;
}

/* Evicts a page that is cold since a completed flush.  l: the list of the vCPU that reclaims, which
 * gets the frame; nothing is posted then.  NULL: the cleaner's.  True: the frame was freed. */
bool evict(struct pager *pg, struct frame_list *l, frame_t n, uint64_t *cnt);
/* Frees a claimed frame that no entry names.  l: as for evict(). */
void evict_give(struct pager *pg, struct frame_list *l, frame_t n);
/* Completes writes that are over.  A page that was used or pinned meanwhile stays; the frame of a
 * page that was unmapped meanwhile is an orphan.  Returns how many frames were freed. */
uint32_t evict_written(struct pager *pg, uint64_t *cnt);
/* The end of a pass of the cleaner's: no slot is kept. */
void evict_over(struct pager *pg);

#endif
