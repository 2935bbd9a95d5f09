/*
 * What there is one of: the cache, and the lock of the address space.
 */
#include "base/kern.h"

struct pager pager;
struct lock mm_lock;

void *env_frame_va(frame_t f)
{
        return (void *)(WINDOW + control.frames_off + (uint64_t)f * PAGE_SIZE);
}
