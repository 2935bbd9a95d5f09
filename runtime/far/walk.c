/*
 * See walk.h.
 */
#include <stdatomic.h>
#include <window.h>
#include "far/walk.h"
#include "include/tree.h"
#include "vm/vm.h"

#define BURST_MS 20                     /* of the rate, at most, after a pause */

static uint64_t next_chunk(uint64_t slot)
{
        slot = (slot | (CHUNK_PAGES - 1)) + 1;
        return slot_page(slot) < CONTROL->slabs[slot_slab(slot)].pages
                       ? slot : (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
}

/* Relaxed: who acts on it looks again. */
static bool may_hold(uint64_t slot)
{
        uint16_t w = atomic_load_explicit(slot_word((char *)TREE_WINDOW, slot),
                                          memory_order_relaxed);

        return (w & ~SLOT_DUE) == (SLOT_OWNED | CONTROL->tree_number) || (w & SLOT_SHARED);
}

uint64_t walk_next(uint64_t *at, unsigned *left)
{
        while (*left) {
                uint64_t slot = *at;
                unsigned cost = 1;
                if (slot_slab(slot) >= CONTROL->nslabs)
                        return WALK_END;
                if (CONTROL->slabs[slot_slab(slot)].kind != SLAB_REMOTE) {
                        *at = (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
                        continue;
                }
                bool touched = chunk_touched(tree_map((char *)TREE_WINDOW, slot_slab(slot)),
                                             CONTROL->tree_number, slot_chunk(slot));
                if (!touched) {
                        *at = next_chunk(slot);
                        cost = 8;
                } else {
                        *at = (slot + 1) % CHUNK_PAGES ? slot + 1 : next_chunk(slot);
                }
                *left -= cost < *left ? cost : *left;
                if (touched && may_hold(slot))
                        return slot;
        }
        return WALK_LATER;
}

bool rate_allows(struct rate *r, uint64_t most, int64_t now_ms, unsigned pages)
{
        int64_t burst = (int64_t)most * BURST_MS / 1000, wanted = (int64_t)pages * PAGE_SIZE;

        if (!most)
                return true;
        if (burst < PAGE_SIZE)
                burst = PAGE_SIZE;
        int64_t gained = (now_ms - r->at) * (int64_t)most / 1000;
        if (gained) {                   /* else what a slow rate gains would be lost each time */
                r->budget += gained;
                r->at = now_ms;
        }
        if (r->budget > burst)
                r->budget = burst;
        return r->budget >= (wanted < burst ? wanted : burst);
}

void rate_take(struct rate *r) { r->budget -= PAGE_SIZE; }
