/*
 * Which copies of a page are good: the bits, their order and their fences.  See copies.h.
 */
#include <stdatomic.h>
#include "far/copies.h"
#include "include/allocator.h"
#include "include/good_copy.h"

static _Atomic uint64_t *good_word(const struct copies *c, uint64_t slot, unsigned k)
{
        return &tree_map(c->units, slot_slab(slot))->good[k][slot_page(slot) / 64];
}

static uint64_t bit_of(uint64_t slot) { return 1ull << slot % 64; }

/* Places of the slab, if there are bits of them; also those that this process does not know yet.
 * Acquire: bits that were set before are seen.  A process that wrote the slot at a place gave the
 * slot up after that place was there, so the new owner sees all places with the page. */
static unsigned places_with_bits(const struct copies *c, uint64_t slot)
{
        return atomic_load_explicit(&tree_map(c->units, slot_slab(slot))->places,
                                    memory_order_acquire);
}

static bool is_good(const struct copies *c, uint64_t slot, unsigned k)
{
        return slot_good(c->units, slot, 1u << k);
}

/* Most writes change no bit, and then cost no write to shared memory.  Release: see is_good(); and
 * the page is there before other processes read it. */
static void set_bit(_Atomic uint64_t *word, uint64_t slot, bool on)
{
        if (on == !!(atomic_load_explicit(word, memory_order_relaxed) & bit_of(slot)))
                return;
        if (on)
                atomic_fetch_or_explicit(word, bit_of(slot), memory_order_release);
        else
                atomic_fetch_and_explicit(word, ~bit_of(slot), memory_order_release);
}

static void set_good(const struct copies *c, uint64_t slot, unsigned k, bool good)
{
        set_bit(good_word(c, slot, k), slot, good);
}

/* May a write that some process, alive or buried, has given up still arrive at this node? */
static bool is_threatened(const struct copies *c, const struct far_node *n)
{
        const struct tree_common *t = tree_common(c->units);

        if (atomic_load_explicit(&t->uncut, memory_order_acquire) >> n->index & 1)
                return true;
        uint32_t processes = atomic_load_explicit(&t->numbers, memory_order_acquire);

        for (uint32_t p = 0; p < processes; p++)
                if (atomic_load_explicit(&t->process[p].unfenced, memory_order_acquire) >>
                            n->index & 1)
                        return true;
        return false;
}

bool copies_drain(const struct copies *c, const struct far_node *n)
{
        const struct tree_common *t = tree_common(c->units);

        return atomic_load_explicit(&t->draining, memory_order_acquire) >> n->index & 1;
}

static unsigned places_of(const struct far_slab *s)
{
        return atomic_load_explicit(&s->places, memory_order_acquire);
}

/* The places that the page can be read from now, of nodes of the highest priority: a set. */
static unsigned readable(const struct copies *c, const struct far_slab *s, uint64_t slot,
                         unsigned not)
{
        unsigned set = 0, highest = 0, places = places_of(s);

        for (unsigned k = 0; k < places; k++) {
                const struct far_node *n = s->place[k].node;
                const unsigned priority = n->option->priority;
                if (not >> k & 1 || priority < highest || !far_answers(n) || !is_good(c, slot, k))
                        continue;
                set = (priority > highest ? 0 : set) | 1u << k;
                highest = priority;
        }
        return set;
}

int copies_to_read(const struct copies *c, const struct far_slab *s, uint64_t slot, unsigned not)
{
        unsigned set = readable(c, s, slot, not);

        return set ? (int)slot_place(set, slot) : -1;
}

unsigned copies_good(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        unsigned set = 0, places = places_of(s);

        for (unsigned k = 0; k < places; k++)
                if (is_good(c, slot, k))
                        set |= 1u << k;
        return set;
}

unsigned copies_to_write(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        unsigned set = 0, places = places_of(s);

        for (unsigned k = 0; k < places; k++) {
                const struct far_node *n = s->place[k].node;
                if (far_answers(n) && (is_good(c, slot, k) || !is_threatened(c, n)))
                        set |= 1u << k;
        }
        return set;
}

bool copies_only_draining(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        unsigned places = places_of(s);
        bool needed = false;

        for (unsigned k = 0; k < places; k++) {
                const struct far_node *n = s->place[k].node;
                if (n->lost || !is_good(c, slot, k))
                        continue;
                if (copies_drain(c, n))
                        needed = true;
                else if (far_answers(n))
                        return false;
        }
        return needed;
}

unsigned copies_staying(const struct copies *c, const struct far_slab *s, unsigned places)
{
        unsigned set = 0;

        for (unsigned k = 0; places >> k; k++)
                if (places >> k & 1 && !copies_drain(c, s->place[k].node))
                        set |= 1u << k;
        return set;
}

/* Places that answer, fence, stay, and have no good copy: a set. */
static unsigned wanting(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        unsigned set = 0, places = places_of(s);

        for (unsigned k = 0; k < places; k++)
                if (far_answers(s->place[k].node) && s->place[k].node->fences &&
                    !copies_drain(c, s->place[k].node) && !is_good(c, slot, k))
                        set |= 1u << k;
        return set;
}

bool copies_wanting(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        return wanting(c, s, slot) && copies_to_read(c, s, slot, 0) >= 0;
}

unsigned copies_to_repair(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        return wanting(c, s, slot) & copies_to_write(c, s, slot);
}

/* A place that another process has added, and may have filled, is known to this process only after
 * moves.c has looked again. */
static bool knows_all(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        return places_of(s) >= places_with_bits(c, slot);
}

/* Some process has the slot, and its page is copied.  A slot that is DUE for good, since a node of
 * the slab does not fence, is not. */
static bool is_copied(const struct slab_map *map, unsigned page, bool fenced)
{
        uint16_t w = atomic_load_explicit(&map->word[page], memory_order_relaxed);

        return w & SLOT_STATE && (fenced || w & SLOT_SHARED || !(w & SLOT_DUE));
}

/* Of 64 slots from `first` on, a set, those that are copied. */
static uint32_t count_copied(const struct slab_map *map, unsigned first, uint64_t set)
{
        uint32_t n = 0;

        for (; set; set &= set - 1)
                n += is_copied(map, first + (unsigned)__builtin_ctzll(set), true);
        return n;
}

/* Of 64 slots those that some place in the set `lack` does not have and some place in `have` has;
 * without slots of which no copy fits its sum. */
static uint64_t not_at(const struct slab_map *map, unsigned i, unsigned have, unsigned lack)
{
        uint64_t there = 0, missing = 0;

        for (unsigned k = 0; (have | lack) >> k; k++) {
                uint64_t good = atomic_load_explicit(&map->good[k][i], memory_order_acquire);
                there |= have >> k & 1 ? good : 0;
                missing |= lack >> k & 1 ? ~good : 0;
        }
        return there & missing & ~atomic_load_explicit(&map->unfit[i], memory_order_relaxed);
}

bool copies_any_wanting(const struct copies *c, const struct far_slab *s, uint32_t slab,
                        uint32_t npages)
{
        const struct slab_map *map = tree_map(c->units, slab);
        const uint64_t first = (uint64_t)slab << SLAB_SHIFT;
        unsigned places = places_of(s), to_read = 0, to_write = 0;
        bool fenced = true;

        if (!places_with_bits(c, first))
                return false;
        if (!knows_all(c, s, first))
                return true;
        for (unsigned k = 0; k < places; k++) {
                const struct far_node *n = s->place[k].node;
                fenced &= n->fences;
                if (!far_answers(n))
                        continue;
                to_read |= 1u << k;
                if (n->fences && !copies_drain(c, n))
                        to_write |= 1u << k;
        }
        for (unsigned i = 0; i < npages; i += 64) {
                uint64_t set = not_at(map, i / 64, to_read, to_write);
                for (; set; set &= set - 1)
                        if (is_copied(map, i + (unsigned)__builtin_ctzll(set), fenced))
                                return true;
        }
        return false;
}

uint32_t copies_lacking(const struct copies *c, const struct far_slab *s, uint32_t slab,
                        uint32_t npages, unsigned k)
{
        const struct slab_map *map = tree_map(c->units, slab);
        const unsigned places = places_of(s);
        uint32_t n = 0;

        if (!places_with_bits(c, (uint64_t)slab << SLAB_SHIFT))
                return 0;
        for (unsigned i = 0; i < npages; i += 64)
                n += count_copied(map, i, not_at(map, i / 64, (1u << places) - 1, 1u << k));
        return n;
}

uint32_t copies_at(const struct copies *c, const struct far_slab *s, uint32_t slab, uint32_t npages,
                   unsigned k, uint32_t *left)
{
        const struct slab_map *map = tree_map(c->units, slab);
        const unsigned places = places_of(s);
        const bool bits = places_with_bits(c, (uint64_t)slab << SLAB_SHIFT);
        uint32_t n = 0;

        *left = 0;
        for (unsigned i = 0; i < npages; i += 64) {
                uint64_t here = ~0ull, staying = 0;
                for (unsigned p = 0; bits && p < places; p++) {
                        const struct far_node *node = s->place[p].node;
                        uint64_t good = atomic_load_explicit(&map->good[p][i / 64],
                                                             memory_order_acquire);
                        if (p == k)
                                here = good;
                        else if (far_answers(node) && !copies_drain(c, node))
                                staying |= good;
                }
                /* each word once: it may change meanwhile */
                uint32_t alone = count_copied(map, i, here & ~staying);
                n += alone + count_copied(map, i, here & staying);
                *left += alone;
        }
        return n;
}

/* Of 64 slots those with a copy somewhere, but with fewer than `replicas` in the set `have`;
 * without slots of which no copy fits its sum. */
static uint64_t fewer_than(const struct slab_map *map, unsigned i, unsigned places, unsigned have,
                           unsigned replicas)
{
        uint64_t at_least[REPLICAS_MAX + 1] = { ~0ull }, any = 0;

        for (unsigned k = 0; k < places; k++) {
                uint64_t good = atomic_load_explicit(&map->good[k][i], memory_order_acquire);
                any |= good;
                for (unsigned n = have >> k & 1 ? replicas : 0; n; n--)
                        at_least[n] |= at_least[n - 1] & good;
        }
        return any & ~at_least[replicas] &
               ~atomic_load_explicit(&map->unfit[i], memory_order_relaxed);
}

uint32_t copies_fewer(const struct copies *c, const struct far_slab *s, uint32_t slab,
                      uint32_t npages, unsigned replicas)
{
        const struct slab_map *map = tree_map(c->units, slab);
        const unsigned places = places_of(s);
        const bool bits = places_with_bits(c, (uint64_t)slab << SLAB_SHIFT);
        unsigned have = 0;
        uint32_t n = 0;

        for (unsigned k = 0; k < places; k++)
                have |= far_answers(s->place[k].node) ? 1u << k : 0;
        for (unsigned i = 0; i < npages; i += 64) {
                /* without bits each page is at the one place */
                uint64_t set = bits ? fewer_than(map, i / 64, places, have, replicas)
                                    : have && replicas < 2 ? 0 : ~0ull;
                n += count_copied(map, i, set);
        }
        return n;
}

static void set_unfit(const struct copies *c, uint64_t slot, bool unfit)
{
        set_bit(&tree_map(c->units, slot_slab(slot))->unfit[slot_page(slot) / 64], slot, unfit);
}

void copies_unfit(const struct copies *c, uint64_t slot) { set_unfit(c, slot, true); }

void copies_written(const struct copies *c, uint64_t slot, unsigned good)
{
        unsigned places = places_with_bits(c, slot);

        if (places)
                set_unfit(c, slot, false);
        for (unsigned k = 0; k < places; k++)
                set_good(c, slot, k, good >> k & 1);
}

void copies_repaired(const struct copies *c, uint64_t slot, unsigned good)
{
        set_unfit(c, slot, false);
        for (unsigned k = 0; good >> k; k++)
                if (good >> k & 1)
                        set_good(c, slot, k, true);
}

void copies_spoiled(const struct copies *c, uint64_t slot, unsigned k)
{
        set_good(c, slot, k, false);
}

bool copies_gone(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        if (!knows_all(c, s, slot))
                return false;
        unsigned places = places_of(s);

        for (unsigned k = 0; k < places; k++)
                if (!s->place[k].node->lost && is_good(c, slot, k))
                        return false;
        return true;
}

bool copies_all_lost(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        if (!knows_all(c, s, slot))
                return false;
        unsigned places = places_of(s);

        for (unsigned k = 0; k < places; k++)
                if (!s->place[k].node->lost)
                        return false;
        return true;
}

void copies_unfenced(const struct copies *c, const struct far_node *n)
{
        struct tree_process *p = &tree_common(c->units)->process[c->self];

        if (n->fences)
                atomic_fetch_or_explicit(&p->unfenced, 1ull << n->index, memory_order_release);
}

void copies_fenced(const struct copies *c, const struct far_node *n)
{
        struct tree_process *p = &tree_common(c->units)->process[c->self];

        atomic_fetch_and_explicit(&p->unfenced, ~(1ull << n->index), memory_order_release);
}
