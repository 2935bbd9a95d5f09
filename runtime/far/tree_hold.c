/*
 * See tree.h: slots held by several processes.
 *
 * There is no count of holders that a kill could leave wrong.  Each process has a bit a slot.  A
 * process that releases a slot clears its own bit and then finds out whether it was the last
 * holder: it changes the word from SHARED to CHECK, reads the bits of all processes, and changes
 * the word to FREE or back to SHARED.
 *
 * Two races decide the protocol:
 *   Two processes release the slot at the same time.  Only one gets the word to CHECK; the other
 *   leaves AGAIN there after it cleared its bit, and the first one looks again.
 *   While q looks, p shares the slot with c and then releases it, and q has read c's bit before and
 *   p's bit after.  So p, too, leaves AGAIN: after it set c's bit and before it clears its own.
 *
 * A slot that is DUE stays so in all its states, and is retired where another would be free.
 *
 * All accesses are sequentially consistent: each step orders a process's own store before its load
 * of what another process stores.
 */
#include <errno.h>
#include "far/tree.h"

static struct tree_process *counts(struct tree *t, uint32_t p)
{
        return &((struct tree_common *)t->units)->process[p];
}

static _Atomic uint64_t *bits_of(struct tree *t, uint32_t p, uint64_t slot)
{
        return t->bits + ((uint64_t)slot_slab(slot) * TREE_PROCESSES + p) * (SLAB_PAGES / 64) +
               slot_page(slot) / 64;
}
static uint64_t bit_of(uint64_t slot) { return 1ull << (slot % 64); }

/* A process that never touched the chunk has no bits there: do not allocate a page of the file by
 * reading them. */
static bool anybody_holds(struct tree *t, uint64_t slot)
{
        struct slab_map *map = tree_map(t->units, slot_slab(slot));
        uint32_t n = atomic_load(&((struct tree_common *)t->units)->numbers);

        for (uint32_t p = 0; p < n; p++)
                if (chunk_touched(map, p, slot_chunk(slot)) &&
                    (atomic_load(bits_of(t, p, slot)) & bit_of(slot)))
                        return true;
        return false;
}

uint64_t tree_shared_in(const struct tree *t, uint32_t slab, uint32_t chunk)
{
        const _Atomic uint64_t *bits =
                t->bits + ((uint64_t)slab * TREE_PROCESSES + t->self) * (SLAB_PAGES / 64) +
                (uint64_t)chunk * CHUNK_PAGES / 64;
        uint64_t n = 0;

        for (unsigned i = 0; i < CHUNK_PAGES / 64; i++)
                n += (uint64_t)__builtin_popcountll(
                        atomic_load_explicit(&bits[i], memory_order_relaxed));
        return n;
}

bool tree_shares(const struct tree *t, uint64_t slot)
{
        const struct slab_map *map = tree_map(t->units, slot_slab(slot));

        return chunk_touched((struct slab_map *)map, t->self, slot_chunk(slot)) &&
               (atomic_load(bits_of((struct tree *)t, t->self, slot)) & bit_of(slot));
}

/* The word is CHECK of this process.  due: SLOT_DUE or 0.  True: the slot is free now. */
static bool finish_check(struct tree *t, uint64_t slot, uint16_t due)
{
        struct slab_map *map = tree_map(t->units, slot_slab(slot));
        slot_word_t *word = slot_word(t->units, slot);
        const uint16_t mine = (uint16_t)(SLOT_CHECK | due | t->self);

        for (;;) {
                uint16_t seen = mine;
                bool held = anybody_holds(t, slot);
                uint16_t next = (uint16_t)(due | (held ? SLOT_SHARED : SLOT_FREE));
                if (atomic_compare_exchange_strong(word, &seen, next)) {
                        bool is_free = !held && !due;
                        if (is_free)
                                chunk_reopen(map, slot_chunk(slot));
                        return is_free;
                }
                /* AGAIN is cleared before the bits are read again */
                atomic_store(word, mine);
        }
}

/* After a holder's bit was cleared.  True: it was the last, and the slot is free now. */
static bool check(struct tree *t, uint64_t slot)
{
        slot_word_t *word = slot_word(t->units, slot);
        uint16_t seen = atomic_load(word);

        chunk_touch(tree_map(t->units, slot_slab(slot)), t->self, slot_chunk(slot));
        for (;;) {
                uint16_t due = seen & SLOT_DUE;
                if (seen == (SLOT_SHARED | due)) {
                        if (atomic_compare_exchange_strong(word, &seen,
                                                           (uint16_t)(SLOT_CHECK | due | t->self)))
                                return finish_check(t, slot, due);
                } else if ((seen & SLOT_STATE) == SLOT_CHECK && !(seen & SLOT_AGAIN)) {
                        if (atomic_compare_exchange_strong(word, &seen,
                                                           (uint16_t)(seen | SLOT_AGAIN)))
                                return false;
                } else {
                        /* freed by another process, and maybe taken since; or its checker will look
                         * again anyway */
                        return false;
                }
        }
}

/* A process that checks for holders right now must look again. */
static void disturb_check(slot_word_t *word)
{
        uint16_t seen = atomic_load(word);
        while ((seen & SLOT_STATE) == SLOT_CHECK && !(seen & SLOT_AGAIN) &&
               !atomic_compare_exchange_strong(word, &seen, (uint16_t)(seen | SLOT_AGAIN)))
                ;
}

static int share_one(struct tree *t, uint32_t child, uint64_t slot)
{
        struct slab_map *map = tree_map(t->units, slot_slab(slot));
        slot_word_t *word = slot_word(t->units, slot);
        uint16_t seen = atomic_load(word);
        bool owned = (seen & ~SLOT_DUE) == (SLOT_OWNED | t->self);

        if (!owned &&
            (!(seen & SLOT_SHARED) || !(atomic_load(bits_of(t, t->self, slot)) & bit_of(slot))))
                return -EINVAL;
        chunk_touch(map, child, slot_chunk(slot));
        if (atomic_fetch_or(bits_of(t, child, slot), bit_of(slot)) & bit_of(slot))
                return -EEXIST;
        atomic_fetch_add(&counts(t, child)->shared, 1);
        if (owned) {
                atomic_fetch_or(bits_of(t, t->self, slot), bit_of(slot));
                atomic_fetch_sub(&counts(t, t->self)->owned, 1);
                atomic_fetch_add(&counts(t, t->self)->shared, 1);
                /* no write is under way: nobody else changes the word */
                atomic_store(word, (uint16_t)(SLOT_SHARED | (seen & SLOT_DUE)));
        } else {
                disturb_check(word);
        }
        return 0;
}

int tree_share(struct tree *t, uint32_t child, const uint64_t *slots, size_t n)
{
        int err = 0;

        for (size_t i = 0; i < n && !err; i++)
                err = slot_slab(slots[i]) < t->head->nslabs ? share_one(t, child, slots[i])
                                                            : -EINVAL;
        return err;
}

int tree_release(struct tree *t, const uint64_t *slots, size_t n)
{
        int err = 0;

        for (size_t i = 0; i < n; i++) {
                uint64_t s = slots[i];
                if (slot_slab(s) >= t->head->nslabs ||
                    !(atomic_fetch_and(bits_of(t, t->self, s), ~bit_of(s)) & bit_of(s))) {
                        err = -EINVAL;
                        continue;
                }
                atomic_fetch_sub(&counts(t, t->self)->shared, 1);
                check(t, s);
        }
        return err;
}

/* Writes of a process that is buried may still arrive at these nodes: what they have of its slots
 * is not read again. */
static void spoil_copies(struct tree *t, uint64_t slot)
{
        const struct tree_slab *s = &t->head->slab[slot_slab(slot)];
        struct slab_map *map = tree_map(t->units, slot_slab(slot));
        uint64_t uncut = atomic_load(&((struct tree_common *)t->units)->uncut);

        for (uint32_t k = 0; uncut && k < atomic_load(&map->places); k++)
                if (uncut >> s->place[k].node & 1)
                        atomic_fetch_and(&map->good[k][slot_page(slot) / 64], ~bit_of(slot));
}

static uint64_t bury_word(struct tree *t, uint32_t p, uint64_t slot)
{
        slot_word_t *word = slot_word(t->units, slot);
        uint16_t seen = atomic_load(word), due = seen & SLOT_DUE;

        if (seen == (SLOT_OWNED | due | p)) {
                spoil_copies(t, slot);
                atomic_store(word, due);
                return !due;
        }
        /* p died during its check: finish the check in its place */
        while ((seen & ~SLOT_AGAIN) == (SLOT_CHECK | due | p))
                if (atomic_compare_exchange_strong(word, &seen,
                                                   (uint16_t)(SLOT_CHECK | due | t->self)))
                        return finish_check(t, slot, due);
        /* p, or a process that was burying it, may have died after p's bit was cleared and before
         * the check for other holders. */
        return seen == (SLOT_SHARED | due) && !anybody_holds(t, slot) && check(t, slot);
}

static uint64_t bury_chunk(struct tree *t, uint32_t p, uint32_t slab, uint32_t chunk)
{
        struct slab_map *map = tree_map(t->units, slab);
        uint64_t first = (uint64_t)slab << SLAB_SHIFT | (uint64_t)chunk << CHUNK_SHIFT, freed = 0;
        uint16_t claimed = (uint16_t)(CHUNK_CLAIMED | p);

        chunk_touch(map, t->self, chunk);
        for (uint64_t s = first; s < first + CHUNK_PAGES; s += 64)
                for (uint64_t left = atomic_load(bits_of(t, p, s)); left; left &= left - 1) {
                        uint64_t slot = s + (uint64_t)__builtin_ctzll(left);
                        atomic_fetch_and(bits_of(t, p, slot), ~bit_of(slot));
                        freed += check(t, slot);
                }
        for (uint64_t s = first; s < first + CHUNK_PAGES; s++)
                freed += bury_word(t, p, s);
        atomic_compare_exchange_strong(&map->chunk[chunk], &claimed, CHUNK_OPEN);
        /* for the slots above, and for the one that it freed last */
        chunk_reopen(map, chunk);
        return freed;
}

uint64_t tree_bury(struct tree *t, uint32_t p)
{
        uint64_t freed = 0;
        uint32_t repairer = p + 1;

        for (uint32_t slab = 0; slab < t->head->nslabs; slab++) {
                _Atomic uint64_t *touched = tree_map(t->units, slab)->touched[p];
                for (uint32_t i = 0; i < SLAB_CHUNKS / 64; i++) {
                        for (uint64_t left = atomic_load(&touched[i]); left; left &= left - 1)
                                freed += bury_chunk(t, p, slab,
                                                    i * 64 + (uint32_t)__builtin_ctzll(left));
                        atomic_store(&touched[i], 0);
                }
        }
        atomic_store(&counts(t, p)->owned, 0);
        atomic_store(&counts(t, p)->shared, 0);
        /* It is cut off: rule 5. */
        atomic_store(&counts(t, p)->unfenced, 0);
        atomic_compare_exchange_strong(&((struct tree_common *)t->units)->repairer, &repairer, 0);
        return freed;
}
