/*
 * The parts of guest-physical space: RAM from RAM_GPA on, above it far tiers that are memory, at
 * the top the arena of shared mappings (memory/arena.h).  Arithmetic only.
 */
#ifndef VMRUN_SPACE_H
#define VMRUN_SPACE_H

#include <stdint.h>

/* How far the pool may grow, in bytes: page tables take 1/512 of what is mapped, more where
 * mappings are sparse. */
uint64_t space_pool(uint64_t nframes, uint64_t far_pages);
/* How many pages of cache and far memory a pool of so many bytes is enough for. */
uint64_t space_pool_pages(uint64_t pool);

/* RAM and far tiers end here at the latest: an eighth is always left for the arena. */
uint64_t space_far_most(unsigned bits);

/* Where the arena begins, and its bytes.  far: where far tiers begin; pool: as of space_pool(). */
struct space_arena { uint64_t gpa, size; };
struct space_arena space_arena(unsigned bits, uint64_t far, uint64_t pool);

#endif
