/*
 * What the memory system calls share: charges and limits (mm_account.c), operations on ranges (mm_range.c).
 * Lengths and counts are in bytes unless called pages.  All but the charges need mm_lock.
 *
 * A range operation has one of two shapes, both under mm_lock from start to end:
 *   take VMAs out of the tree, pt_wait_faults(), edit PTEs (put VMAs back);
 *   mm_hide() the range, which waits too, edit VMAs and PTEs in any order, mm_show().
 * A fault that looks meanwhile finds nothing, goes to mm_grow_stack(), waits there for mm_lock and looks again.  So every
 * operation is atomic for the program, and no page is instantiated or charged while its VMA changes its ways.
 */
#ifndef VMRUN_MM_RANGE_H
#define VMRUN_MM_RANGE_H

#include <asm-generic/errno.h>
#include "space/vma.h"
#include "space/pt.h"

static inline bool vma_accessible(const struct vma *v) { return v->prot & PROT_ALL; }

/* Does [start, end) touch what vmrun keeps for itself? */
static inline bool mm_reserved(uint64_t start, uint64_t end) { return start < RESERVED_END && end > RESERVED_START; }

/* Steps through the parts of [*pos, end) outside the reserved range, where a PROT_NONE VMA may lie but page tables are kern's:
 * for (s = start; mm_part(&s, end, &e); s = e) */
static inline bool mm_part(uint64_t *pos, uint64_t end, uint64_t *part_end)
{
        if (*pos >= RESERVED_START && *pos < RESERVED_END)
                *pos = RESERVED_END;
        *part_end = *pos < RESERVED_START ? lower(end, RESERVED_START) : end;
        return *pos < end;
}

/* --- mm_account.c --- */
bool mm_charge(uint64_t pages);
/* How v is paid for: VMA_CHARGED, VMA_TOUCH or 0. */
uint32_t mm_payment(const struct vma *v);
/* RLIMIT_AS and RLIMIT_DATA, for so many pages more that look like v, and so many fewer of any kind. */
bool mm_may_expand(const struct vma *v, uint64_t pages, uint64_t fewer);
/* RLIMIT_MEMLOCK (over_limit if exceeded) and the cache's own share (-ENOMEM). */
int mm_may_lock(uint64_t pages, int over_limit);

/* --- mm_range.c --- */
void mm_hide(uint64_t start, uint64_t end);
void mm_show(void);
/* Splits VMAs so that bounds lie at start and end; with at most max VMAs afterwards.  0 or -ENOMEM, then all is as before. */
int mm_isolate(uint64_t start, uint64_t end, uint32_t max);
/* Joins neighbours in and around [start, end] that have become alike. */
void mm_merge(uint64_t start, uint64_t end);
/* Charges v and puts it in a free place, merged.  A node is reserved (vma_reserve).  0 or -ENOMEM. */
int mm_insert(struct vma v);
/* Unmaps; 0 or -ENOMEM.  mm_munmap() checks its arguments first as munmap does: -EINVAL. */
int mm_unmap(uint64_t start, uint64_t end);
int mm_munmap(uint64_t start, uint64_t len);
/* Sets or clears FRAME_LOCKED for the frames that are there, in VMAs whose VMA_LOCKED says the same. */
void mm_lock_frames(uint64_t start, uint64_t end, bool lock);
/* Gives back what a VMA holds outside the tree: file reference or arena range. */
void mm_release(const struct vma *v);
/* Drops the pages of a hidden or removed range, with the charges of their own. */
void mm_zap(uint64_t start, uint64_t end);
/* Free address space for len bytes; flags: MAP_32BIT.  Address or -ENOMEM. */
long mm_find_area(uint64_t hint, uint64_t len, uint32_t flags);
/* Is [start, end) free of VMAs and guard gaps? */
bool mm_is_free(uint64_t start, uint64_t end);

/* --- without mm_lock --- */
/* A mapping being made. */
struct mm_request {
        uint64_t addr, len, off;        /* len: whole pages */
        uint32_t flags;                 /* the MAP_* that say where, and what to do at once */
        int32_t fd;
        struct vma v;                   /* what it becomes: all but its bounds */
};

/* In this order, where there is an object of the host's (mm_map.c).  May MAP_FIXED be there?  0 or -errno. */
int mm_check_fixed(const struct mm_request *r);
/* r->v owns the object that the last exit has opened. */
void mm_take_object(struct mm_request *r);
/* Maps what r->v says.  Address, or -errno, and the object was given back, as it is by mm_give_up(), which returns err. */
long mm_map_opened(struct mm_request *r);
long mm_give_up(struct mm_request *r, long err);

/* Makes what is mapped in [start, end) resident, writable where the program may write its own copy; at most max pages.  The
 * first error of fault_in(), -EFAULT for PROT_NONE.  Holes are skipped. */
int mm_populate(uint64_t start, uint64_t end, uint64_t max);

/* The same for what is VMA_LOCKED there, and what came stays; PROT_NONE does not keep it from the rest. (mm_lock.c) */
int mm_populate_locked(uint64_t start, uint64_t end);

/* mlockall(MCL_FUTURE): VMA_LOCKED for whatever is mapped from now on, else 0. (mm_lock.c) */
extern uint32_t mm_lock_future __attribute__((visibility("hidden")));
extern bool mm_lock_onfault __attribute__((visibility("hidden")));            /* but do not populate it */
void mm_brk_init(void);                 /* mm_brk.c */
void mm_set_brk(uint64_t start);
void mm_get_brk(uint64_t *start, uint64_t *now);        /* for fork, as the next one */
void mm_restore_brk(uint64_t start, uint64_t now);

#endif
