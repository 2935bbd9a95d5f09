/*
 * Taking and giving back slots of the far tiers, in the memory that a process tree shares
 * (include/allocator.h).  Without locks: a process that is stopped or killed in the middle delays
 * no other.
 *
 * One thread of a process takes slots (the service vCPU); any may give them back.
 */
#ifndef VMRUN_SLOTMAP_H
#define VMRUN_SLOTMAP_H

#include "pager/frame.h"
#include "allocator.h"

struct slotmap {
        char *units;                    /* where struct tree_common and the maps are */
        const struct slab *slabs;       /* for their number of pages */
        _Atomic uint32_t nslabs;        /* slabs whose maps can be reached; only grows */
        uint32_t self;                  /* this process's number */
        uint64_t cursor;                /* the next slot to try.  Taker only, as `claimed` */
        bool claimed;                   /* the cursor's chunk is set aside for this process */
};

static inline struct tree_common *slotmap_common(const struct slotmap *m)
{
        return tree_common(m->units);
}

void slotmap_init(struct slotmap *m, char *units, const struct slab *slabs, uint32_t self);
/* A slot for this process alone, the neighbour of the last one if possible; SLOT_NONE if all are in
 * use.  steal: also from chunks set aside for other processes. */
uint64_t slotmap_take(struct slotmap *m, bool steal);
/* Gives back a slot that only this process holds.  False: it is shared, and only the host can
 * release it. */
bool slotmap_put(struct slotmap *m, uint64_t slot);
/* May this process write to a slot that it holds?  False: other processes read it too. */
bool slotmap_writable(const struct slotmap *m, uint64_t slot);

/* How many slots this process holds, and about how many the whole tree uses. */
uint64_t slotmap_held(const struct slotmap *m);
uint64_t slotmap_in_use(const struct slotmap *m);

#endif
