/*
 * Where to read a page that has copies: for all who read pages (runtime/far/copies.h says what the
 * bits mean, and who sets them; kern/far/direct/queue.c reads, too).
 */
#ifndef VMRUN_GOOD_COPY_H
#define VMRUN_GOOD_COPY_H

#include "allocator.h"

/* Of a set of places of its slab, those that have the page of a slot.  Without bits the first place
 * has it.  Acquire: a process that cleared a bit has set its own bit in `unfenced` before; who set
 * it has made the copy before. */
static inline uint32_t slot_good(char *units, uint64_t slot, uint32_t places)
{
        struct slab_map *map = tree_map(units, slot_slab(slot));
        uint32_t page = slot_page(slot), good = 0;

        if (!atomic_load_explicit(&map->places, memory_order_acquire))
                return places & 1;
        for (; places; places &= places - 1) {
                unsigned k = (unsigned)__builtin_ctz(places);
                uint64_t bits = atomic_load_explicit(&map->good[k][page / 64],
                                                     memory_order_acquire);
                good |= (uint32_t)(bits >> page % 64 & 1) << k;
        }
        return good;
}

/* Of places that have the page of a slot, a set that is not empty: the one to read it at.  They
 * share by chunks, so neighbours can go in one request. */
static inline unsigned slot_place(uint32_t places, uint64_t slot)
{
        unsigned n = 0;

        if (places & (places - 1)) {
                for (uint32_t set = places; set; set &= set - 1)
                        n++;
                for (n = slot_chunk(slot) % n; n > 0; n--)
                        places &= places - 1;
        }
        return (unsigned)__builtin_ctz(places);
}

#endif
