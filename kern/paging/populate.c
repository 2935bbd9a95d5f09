/*
 * Makes pages resident before they are touched: for MAP_POPULATE and mlock.
 */
#include <asm-generic/errno.h>
#include "base/state.h"
#include "paging/fault.h"
#include "paging/populate.h"
#include "space/pt.h"
#include "space/range.h"

int mm_populate(uint64_t start, uint64_t end, uint64_t max)
{
        struct vma v;
        struct vma_hidden hidden;
        for (; start < end && max && vma_read(start, &v, &hidden) && v.start < end; start = v.end) {
                start = higher(start, v.start);
                if (!vma_accessible(&v))
                        return -EFAULT;
                uint64_t stop = lower(end, v.end);
                if (page_count(stop - start) > max)
                        stop = start + max * PAGE_SIZE;
                max -= page_count(stop - start);
                int err = fault_in_all(start, stop,
                                       (v.prot & PROT_WRITE) && (v.flags & MAP_PRIVATE));
                if (err)
                        return err;
        }
        return 0;
}

/* Small enough that few pages are evicted again before they are locked. */
#define CHUNK (256 * PAGE_SIZE)
/* Evicted pages are brought in again; each time more are locked. */
#define LOCK_TRIES 64

static bool all_resident(uint64_t start, uint64_t end)
{
        uint8_t vec[CHUNK / PAGE_SIZE];
        pt_resident(start, end, vec);
        for (uint64_t i = 0; i < page_count(end - start); i++)
                if (vec[i] != PT_RESIDENT)
                        return false;
        return true;
}

/* Makes pages of v resident and locks their frames.  v is locked as a whole. */
static int populate_and_lock(const struct vma *v, uint64_t start, uint64_t end)
{
        int err = 0;
        bool done = false;
        for (int tries = 0; !done && !err && tries < LOCK_TRIES; tries++) {
                err = mm_populate(start, end, ~0ull);
                /* A page fetched from the far tiers was not locked at once, since that needs its
                 * VMA; it may have been evicted since. */
                lock_take(&mm_lock);
                pt_wait_faults(start, end);
                mm_lock_frames(start, end, true);
                done = (v->flags & MAP_SHARED) || all_resident(start, end);
                lock_drop(&mm_lock);
        }
        return err;
}

int mm_populate_locked(uint64_t start, uint64_t end)
{
        struct vma v;
        struct vma_hidden hidden;
        int first = 0;
        while (start < end && first != -ENOMEM && vma_read(start, &v, &hidden) && v.start < end) {
                start = higher(start, v.start);
                uint64_t stop = lower(lower(v.end, end), start + CHUNK);
                int err = vma_locked_whole(&v) ? populate_and_lock(&v, start, stop) : 0;
                if (err || !vma_locked_whole(&v))
                        stop = lower(v.end, end);
                if (!first)
                        first = err;
                start = stop;
        }
        return first;
}
