/*
 * Range operations on the page tables of the program (base/tables.h walks them).
 *
 * Callers hold mm_lock, have changed the VMA tree and called pt_wait_faults().  Ranges are
 * page-aligned.
 */
#ifndef VMRUN_PT_H
#define VMRUN_PT_H

#include "base/tables.h"
#include "pager/pager.h"

/* What a range operation has taken out of the page tables, until no TLB can reach it. */
#define PT_GONE_TABLES 64
struct pt_gone {
        struct dropped pages;
        uint64_t epoch;                 /* of the flush, once it has begun */
        uint64_t start, end;            /* the tables lie in between */
        uint32_t ntables;
        pte_slot_t *table[PT_GONE_TABLES];
};
#define PT_GONE_NONE ((struct pt_gone){ .pages = DROPPED_NONE })

/* [I] The flush begins before mm_lock is dropped, and is over before the call returns; before
 * mm_lock is dropped if the call gives addresses or arena ranges back.  An operation waits for the
 * flushes of those before it, too: it may find nothing in an entry whose old translation a TLB
 * still holds. */
void pt_gone_flush(struct pt_gone *gone);       /* begins the flush, if one is needed */
void pt_gone_end(struct pt_gone *gone);         /* waits for it, and frees all */

/* Waits until no vCPU has a fault published whose aligned run meets [start, end). */
void pt_wait_faults(uint64_t start, uint64_t end);

/* Drops every page (frames, slots, arena entries) and unlinks empty tables.  Adds to *gone, and of
 * a large range ends parts itself.  Returns how many of the pages carried a charge of their own
 * (PTE_CHARGED), for the caller to give back. */
uint64_t pt_zap(uint64_t start, uint64_t end, struct pt_gone *gone);

/* Sets the protection of instantiated pages; prot: PTE_PROT bits.  *gone: rights. */
void pt_protect(uint64_t start, uint64_t end, pte_t prot, struct pt_gone *gone);

/* Moves [from, from+len) to [to, to+len), which holds nothing; keeps contents.  No TLB holds the
 * old places afterwards.  0, or -ENOMEM with everything as before. */
int pt_move(uint64_t from, uint64_t to, uint64_t len);

/* One byte a page: PT_RESIDENT, PT_FAR, or 0 for a page that was never touched or was dropped. */
#define PT_RESIDENT 1
#define PT_FAR 2
void pt_resident(uint64_t start, uint64_t end, uint8_t *vec);

/* How many entries of the range lead to the arena. */
uint64_t pt_count_arena(uint64_t start, uint64_t end);

/* MADV_COLD / MADV_PAGEOUT: makes pages the next ones to be evicted. */
void pt_cool(uint64_t start, uint64_t end);

/* mlock: sets or clears FRAME_LOCKED on resident frames; returns how many frames changed. */
uint64_t pt_set_locked(uint64_t start, uint64_t end, bool locked);

#endif
