/*
 * A cursor in the order of a recorded run: where it moves, and which page comes next.
 */
#include <stdatomic.h>
#include <stddef.h>
#include "pager/replay.h"

#define PROBES 64                       /* entries that a search looks at, at most */

/* The page that has this address now, or NONE. */
static uint32_t find(const struct replay *r, uint64_t page)
{
        const uint64_t mask = (1ull << r->hash_bits) - 1;
        uint64_t h = replay_hash(r, page);

        for (unsigned i = 0; i < PROBES; i++, h++) {
                uint64_t e = atomic_load_explicit(&r->hash[h & mask], memory_order_relaxed);
                uint64_t id = (e & ((1ull << REPLAY_PAGE_BITS) - 1)) - 1;
                if (e == 0)
                        break;
                if (e >> REPLAY_PAGE_BITS == page && id < r->pages &&
                    atomic_load_explicit(&r->addr[id], memory_order_relaxed) == page)
                        return (uint32_t)id;
        }
        return REPLAY_NONE;
}

/* The event of the page that is nearest to the stream's cursor, or NONE if it has none. */
static uint32_t nearest(const struct replay *r, const struct replay_stream *s, uint32_t id)
{
        const uint32_t first = r->first[id], end = r->first[id + 1];
        uint32_t low = first, high = end, behind = REPLAY_NONE, e = REPLAY_NONE;

        if (first >= end || end > r->events)
                return REPLAY_NONE;
        while (low < high) {            /* the first at or behind the cursor */
                uint32_t mid = low + (high - low) / 2;
                if (r->where[mid] < s->cursor)
                        low = mid + 1;
                else
                        high = mid;
        }
        if (low > first && r->where[low - 1] >= s->begin)
                behind = r->where[low - 1];
        if (low < end && r->where[low] < s->end)
                e = r->where[low];
        return e == REPLAY_NONE || (behind != REPLAY_NONE && s->cursor - behind < e - s->cursor)
                       ? behind
                       : e;
}

static void move_to(struct replay_stream *s, uint32_t event)
{
        /* Far away, the pages that were asked for here are of no use. */
        if (event >= s->cursor + REPLAY_AHEAD || event < s->cursor || s->ahead <= event)
                s->ahead = event + 1;
        s->cursor = event + 1;
        s->astray = REPLAY_NONE;
        s->agreed = 0;
}

/* A fault leads away from the cursor.  True: so did earlier faults, to nearly this event. */
static bool agrees(struct replay_stream *s, uint32_t event)
{
        if (event > s->astray && event - s->astray <= REPLAY_NEAR) {
                s->astray = event;
                return ++s->agreed >= REPLAY_AGREE;
        }
        if (s->agreed)
                s->agreed--;
        else
                s->astray = event;
        return false;
}

bool replay_at(const struct replay *r, struct replay_stream *s, uint64_t page, bool asked)
{
        uint32_t id = find(r, page), e = id == REPLAY_NONE ? id : nearest(r, s, id);
        uint32_t near = asked && s->ahead - s->cursor > REPLAY_NEAR ? s->ahead - s->cursor
                                                                    : REPLAY_NEAR;

        if (e == REPLAY_NONE)
                return false;
        if (e >= s->cursor && e - s->cursor < near) {
                move_to(s, e);
                return true;
        }
        /* A page that was evicted before its time, or that is needed once more. */
        if (e < s->cursor && s->cursor - e <= REPLAY_NEAR)
                return true;
        if (!agrees(s, e))
                return false;
        move_to(s, e);
        return true;
}

uint64_t replay_next(const struct replay *r, struct replay_stream *s)
{
        while (s->ahead < s->end && s->ahead - s->cursor < REPLAY_AHEAD) {
                uint32_t id = r->order[s->ahead++];
                uint64_t page = id < r->pages ? atomic_load_explicit(&r->addr[id],
                                                                     memory_order_relaxed) : 0;
                if (page)
                        return page;
        }
        return 0;
}
