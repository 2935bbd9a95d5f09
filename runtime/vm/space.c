/*
 * Sizes of the parts of guest-physical space.
 */
#include "vm/space.h"
#include "abi_slab.h"
#include "allocator.h"

#define GiB (1ull << 30)
#define LARGE (2ull << 20)

static uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) / unit * unit; }

uint64_t space_pool(uint64_t nframes, uint64_t far_pages)
{
        return round_up((nframes + far_pages) * PAGE_SIZE / 64 + GiB, GiB);
}

uint64_t space_pool_pages(uint64_t pool) { return pool / PAGE_SIZE * 64; }

uint64_t space_far_most(unsigned bits) { return (1ull << bits) / 8 * 7; }

/* Each slab has a map, and its size is rounded up. */
#define SLABS_BYTES (SLABS_MAX * (SLAB_MAP_SIZE + LARGE) + GiB)

/* [I] All far memory that the pool has page tables for fits below the arena: so a node that is
 * added later finds room (vm_far_room). */
struct space_arena space_arena(unsigned bits, uint64_t far, uint64_t pool)
{
        uint64_t gpa = round_up(far + space_pool_pages(pool) * PAGE_SIZE + SLABS_BYTES, GiB);

        if (gpa > space_far_most(bits))
                gpa = space_far_most(bits);
        uint64_t size = (1ull << bits) - gpa;
        return (struct space_arena){ gpa, size < ARENA_END - ARENA ? size : ARENA_END - ARENA };
}
