/*
 * State that exists once in a guest: the cache, and the lock of the address space.
 */
#include "base/state.h"
#include "guest_ram.h"
#include "pager/env.h"

struct pager pager;
struct lock mm_lock;

void *env_frame_va(frame_t f)
{
        return frame_host(f);
}
