/*
 * Slots taken and given back: the search for a free slot, chunk by chunk, and changes of its word.
 */
#include "far/slotmap.h"
#include "pager/env.h"

#define LANES 4                         /* slot words in 8 bytes */
typedef uint64_t __attribute__((may_alias)) lanes_t;

static uint64_t first_slot(uint32_t slab, uint32_t chunk)
{
        return (uint64_t)slab << SLAB_SHIFT | (uint64_t)chunk << CHUNK_SHIFT;
}

static uint32_t chunks_of(const struct slab *s)
{
        return (s->pages + CHUNK_PAGES - 1) >> CHUNK_SHIFT;
}

static struct tree_process *process(const struct slotmap *m)
{
        return &slotmap_common(m)->process[m->self];
}

/* The first free word in [from, end), or end.  Another process may take the word meanwhile. */
static uint32_t find_free(const slot_word_t *word, uint32_t from, uint32_t end)
{
        for (; from < end && from % LANES; from++)
                if (atomic_load_explicit(&word[from], memory_order_relaxed) == SLOT_FREE)
                        return from;
        for (; from < end; from += LANES) {
                uint64_t v = __atomic_load_n((const lanes_t *)&word[from], __ATOMIC_RELAXED);
                /* Its lowest bit is exact. */
                uint64_t zero = (v - 0x0001000100010001ull) & ~v & 0x8000800080008000ull;
                if (zero) {
                        from += (uint32_t)__builtin_ctzll(zero) / 16;
                        break;
                }
        }
        return from < end ? from : end;
}

/* Takes a slot of the cursor's chunk at or after page `from` of its slab. */
static bool take_in_chunk(struct slotmap *m, uint32_t from, uint64_t *slot)
{
        uint32_t slab = slot_slab(m->cursor), chunk = slot_chunk(m->cursor);
        uint32_t end = (chunk + 1) << CHUNK_SHIFT;
        struct slab_map *map = tree_map(m->units, slab);

        if (end > m->slabs[slab].pages)
                end = m->slabs[slab].pages;
        for (uint32_t at = from; (at = find_free(map->word, at, end)) < end; at++) {
                uint16_t seen = SLOT_FREE, mine = (uint16_t)(SLOT_OWNED | m->self);
                /* Acquire: the slot's last holder no longer uses its content (slotmap_put). */
                if (!atomic_compare_exchange_strong(&map->word[at], &seen, mine))
                        continue;       /* another process was faster */
                *slot = (uint64_t)slab << SLAB_SHIFT | at;
                atomic_fetch_add_explicit(&process(m)->owned, 1, memory_order_relaxed);
                return true;
        }
        return false;
}

/* The chunk set aside for this process has no free slot: marks it full.  True: a slot was found in
 * it after all. */
static bool leave_chunk(struct slotmap *m, uint64_t *slot)
{
        struct slab_map *map = tree_map(m->units, slot_slab(m->cursor));
        uint32_t chunk = slot_chunk(m->cursor), first = chunk << CHUNK_SHIFT;

        if (take_in_chunk(m, first, slot))
                return true;
        m->claimed = false;
        /* Full barrier, then the words once more: see chunk_reopen(). */
        atomic_store(&map->chunk[chunk], CHUNK_FULL);
        if (!take_in_chunk(m, first, slot))
                return false;
        chunk_reopen(map, chunk);
        return true;
}

/* Moves the cursor to the next chunk; false after the last, back at the first. */
static bool next_chunk(struct slotmap *m)
{
        uint32_t slab = slot_slab(m->cursor), chunk = slot_chunk(m->cursor) + 1;
        bool wrapped = false;

        if (slab >= m->nslabs || chunk >= chunks_of(&m->slabs[slab])) {
                chunk = 0;
                if (++slab >= m->nslabs) {
                        slab = 0;
                        wrapped = true;
                }
        }
        m->cursor = first_slot(slab, chunk);
        return !wrapped;
}

/* Takes a slot of the cursor's chunk if it is open or, with `steal`, set aside for another process,
 * which may be dead. */
static bool try_chunk(struct slotmap *m, bool steal, uint64_t *slot)
{
        struct slab_map *map = tree_map(m->units, slot_slab(m->cursor));
        uint32_t chunk = slot_chunk(m->cursor), first = chunk << CHUNK_SHIFT;
        uint16_t seen = atomic_load_explicit(&map->chunk[chunk], memory_order_relaxed);

        if (seen == CHUNK_FULL || (seen != CHUNK_OPEN && !steal))
                return false;
        chunk_touch(map, m->self, chunk);
        if (seen == CHUNK_OPEN)
                m->claimed = atomic_compare_exchange_strong(&map->chunk[chunk], &seen,
                                                            (uint16_t)(CHUNK_CLAIMED | m->self));
        if (!m->claimed)
                return steal && take_in_chunk(m, first, slot);
        return take_in_chunk(m, first, slot) || leave_chunk(m, slot);
}

/* Looks at all chunks once, the cursor's own last. */
static bool look_around(struct slotmap *m, bool steal, uint64_t *slot)
{
        uint64_t start = first_slot(slot_slab(m->cursor), slot_chunk(m->cursor));
        bool wrapped = false;

        do {
                if (!next_chunk(m)) {
                        if (wrapped)
                                return false;
                        wrapped = true;
                }
                if (try_chunk(m, steal, slot))
                        return true;
        } while (!wrapped || m->cursor < start);
        return false;
}

void slotmap_init(struct slotmap *m, char *units, const struct slab *slabs, uint32_t self)
{
        /* Before the first slot of all: the next chunk after the last. */
        *m = (struct slotmap){
                .units = units, .slabs = slabs, .self = self, .cursor = SLAB_PAGES - 1,
        };
}

uint64_t slotmap_take(struct slotmap *m, bool steal)
{
        uint64_t slot;

        if (m->nslabs == 0)
                return SLOT_NONE;
        if (!(m->claimed &&
              (take_in_chunk(m, slot_page(m->cursor), &slot) || leave_chunk(m, &slot))) &&
            !look_around(m, steal, &slot))
                return SLOT_NONE;
        /* After the last slot of a chunk the cursor stays: the next chunk is not set aside for this
         * process. */
        if (m->claimed && slot_page(slot + 1) % CHUNK_PAGES != 0)
                m->cursor = slot + 1;
        return slot;
}

bool slotmap_put(struct slotmap *m, uint64_t slot)
{
        struct slab_map *map = tree_map(m->units, slot_slab(slot));
        uint16_t mine = (uint16_t)(SLOT_OWNED | m->self), seen = mine;

        if (slot_slab(slot) >= m->nslabs)
                env_bug("there is no such slot", slot, m->nslabs);
        /* No other process changes a word that says OWNED by this process, and no write of this
         * process is under way.  But a copy of the page may begin or be over at any moment, so DUE
         * comes and goes (runtime/far/repair.c).  Release: this process no longer uses the
         * content. */
        while (!atomic_compare_exchange_strong(&map->word[slot_page(slot)], &seen,
                                               (uint16_t)(seen & SLOT_DUE))) {
                if (seen & SLOT_SHARED)
                        return false;
                if ((seen & ~SLOT_DUE) != mine)
                        env_bug("a slot was freed that this process does not hold", slot, seen);
        }
        atomic_fetch_sub_explicit(&process(m)->owned, 1, memory_order_relaxed);
        chunk_reopen(map, slot_chunk(slot));
        return true;
}

bool slotmap_writable(const struct slotmap *m, uint64_t slot)
{
        /* Relaxed: only fork makes a slot of this process shared, and this vCPU is stopped
         * meanwhile; and the I/O side leaves the slot DUE before it says that a write is over. */
        uint16_t w = atomic_load_explicit(slot_word(m->units, slot), memory_order_relaxed);
        return w == (SLOT_OWNED | m->self);
}

uint64_t slotmap_held(const struct slotmap *m)
{
        if (m->nslabs == 0)
                return 0;
        return atomic_load_explicit(&process(m)->owned, memory_order_relaxed) +
               atomic_load_explicit(&process(m)->shared, memory_order_relaxed);
}

/* A slot shared by two processes counts once, as far as that is known without a look at each
 * slot. */
uint64_t slotmap_in_use(const struct slotmap *m)
{
        struct tree_common *c = slotmap_common(m);
        uint64_t owned = 0, shared = 0;

        uint32_t n = atomic_load_explicit(&c->numbers, memory_order_relaxed);
        for (uint32_t p = 0; p < n; p++) {
                uint64_t s = atomic_load_explicit(&c->process[p].shared, memory_order_relaxed);
                owned += atomic_load_explicit(&c->process[p].owned, memory_order_relaxed);
                shared = s > shared ? s : shared;
        }
        return owned + shared;
}
