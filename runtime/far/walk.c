/*
 * Steps over slots of remote nodes, within a rate.  See walk.h.
 */
#include <stdatomic.h>
#include "abi_control.h"
#include "far/walk.h"
#include "include/allocator.h"

#define BURST_MS 20                     /* of the rate, at most, after a pause */
/* All processes of a tree together, each by a page, are less ahead of a rate of 1 MB/s; and a
 * process has slept less since it read its clock. */
#define AHEAD_MS 10000

static uint64_t next_chunk(uint64_t slot)
{
        slot = (slot | (CHUNK_PAGES - 1)) + 1;
        return slot_page(slot) < CONTROL->slabs[slot_slab(slot)].pages
                       ? slot : (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
}

/* Relaxed: the caller looks again before it acts on it. */
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

static int64_t takes_ns(uint64_t most, uint64_t npages)
{
        return (int64_t)(npages * PAGE_SIZE * 1000000000ull / most);
}

/* The most time that is saved up: BURST_MS, but a page at least. */
static int64_t burst_ns(uint64_t most)
{
        int64_t page = takes_ns(most, 1);

        return page > BURST_MS * 1000000ll ? page : BURST_MS * 1000000ll;
}

/* The time from which on pages may be counted.  A time further ahead than AHEAD_MS is of another
 * clock: a process of the tree is in another time namespace.  Then no process waits for it, and the
 * rate is not kept. */
static int64_t unused_since(int64_t until, uint64_t most, int64_t now_ns)
{
        int64_t saved = now_ns - burst_ns(most);

        return until < saved || until > now_ns + AHEAD_MS * 1000000ll ? saved : until;
}

bool rate_allows(const rate_t *until, uint64_t most, int64_t now_ms, unsigned pages)
{
        if (!most)
                return true;

        const int64_t now = now_ms * 1000000, wanted = takes_ns(most, pages);
        int64_t from = unused_since(atomic_load_explicit(until, memory_order_relaxed), most, now);
        return now - from >= (wanted < burst_ns(most) ? wanted : burst_ns(most));
}

void rate_take(rate_t *until, uint64_t most, int64_t now_ms)
{
        if (!most)
                return;

        int64_t was = atomic_load_explicit(until, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(
                until, &was,
                unused_since(was, most, now_ms * 1000000) + takes_ns(most, 1),
                memory_order_relaxed, memory_order_relaxed))
                ;
}
