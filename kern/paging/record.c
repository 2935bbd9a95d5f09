/* Noting which pages are waited for; include/recorded.h has the log. */
#include "paging/record.h"
#include "recorded.h"
#include "space/vma.h"

/* The page of an address: by file where it is a file's, since mappings may move; the host does the
 * rest.  0: the page has no number that fits. */
static uint64_t object_page(uint64_t addr)
{
        struct vma v;

        if (mm_lookup(addr, &v) != 0)
                return 0;
        if (v.file == FILE_NONE || (v.flags & MAP_SHARED))
                return addr / PAGE_SIZE;
        uint64_t page = (v.off + (addr - v.start)) / PAGE_SIZE;
        return v.file >> RECORD_FILE_BITS == 0 && page >> RECORD_PAGE_BITS == 0
                       ? (uint64_t)v.file << RECORD_PAGE_BITS | page
                       : 0;
}

void record_wait(uint64_t addr)
{
        struct record_log *log = (struct record_log *)control.record;
        uint64_t n = atomic_fetch_add_explicit(&log->tail, 1, memory_order_relaxed);
        uint64_t vcpu = vcpu_self_fixed.number;

        if (n < RECORD_EVENTS_MAX)
                atomic_store_explicit(&log->event[n], vcpu << RECORD_VCPU_AT | object_page(addr),
                                      memory_order_relaxed);
}
