/*
 * Operations on ranges of the address space, which the memory system calls are made of.  All need
 * mm_lock.
 *
 * A range operation has one of two shapes, both under mm_lock from start to end (but for the flush
 * of an operation that gives no address back, see pt_gone_end):
 *   take VMAs out of the tree, pt_wait_faults(), edit PTEs (put VMAs back);
 *   mm_hide() the range, which waits too, edit VMAs and PTEs in any order, mm_show().
 * A fault that looks meanwhile finds no VMA, calls mm_grow_stack(), waits there for mm_lock and
 * looks again.  So every operation is atomic for the program, and no page is instantiated or
 * charged while its VMA changes.
 */
#ifndef VMRUN_RANGE_H
#define VMRUN_RANGE_H

#include "space/pt.h"
#include "space/vma.h"

/* Does [start, end) overlap the range that vmrun keeps for itself? */
static inline bool mm_reserved(uint64_t start, uint64_t end)
{
        return start < RESERVED_END && end > RESERVED_START;
}

/* Steps through the parts of [*pos, end) outside the reserved range, where a PROT_NONE VMA may lie
 * but page tables are kern's: for (s = start; mm_part(&s, end, &e); s = e) */
static inline bool mm_part(uint64_t *pos, uint64_t end, uint64_t *part_end)
{
        if (*pos >= RESERVED_START && *pos < RESERVED_END)
                *pos = RESERVED_END;
        *part_end = *pos < RESERVED_START ? lower(end, RESERVED_START) : end;
        return *pos < end;
}

void mm_hide(uint64_t start, uint64_t end);
void mm_show(void);

/* Splits VMAs so that bounds lie at start and end; with at most max VMAs afterwards.  0; or
 * -ENOMEM, or -EINVAL if that would cut a huge page: then all is as before. */
int mm_isolate(uint64_t start, uint64_t end, uint32_t max);
/* Merges neighbours in and around [start, end] that have become alike. */
void mm_merge(uint64_t start, uint64_t end);
/* Charges v, inserts it where no VMA is, and merges it.  The caller has reserved a node
 * (vma_reserve).  0 or -ENOMEM. */
int mm_insert(struct vma v);

/* Unmaps; 0, or an error of mm_isolate().  mm_munmap() checks its arguments first as munmap does:
 * -EINVAL. */
int mm_unmap(uint64_t start, uint64_t end);
int mm_munmap(uint64_t start, uint64_t len);
/* Gives back a VMA's file reference or arena range. */
void mm_release(const struct vma *v);
/* Drops the pages of a hidden or removed range, with the charges that pages carry.  Adds to
 * *gone. */
void mm_zap(uint64_t start, uint64_t end, struct pt_gone *gone);

/* Sets or clears FRAME_LOCKED of resident frames, in VMAs whose VMA_LOCKED agrees with `lock`. */
void mm_lock_frames(uint64_t start, uint64_t end, bool lock);

/* Free address space for len bytes, at a multiple of `page`; flags: MAP_32BIT.  Address or
 * -ENOMEM. */
long mm_find_area(uint64_t hint, uint64_t len, uint64_t page, uint32_t flags);
/* Is [start, end) free of VMAs and guard gaps? */
bool mm_is_free(uint64_t start, uint64_t end);

#endif
