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
 * A process that buries another looks at 64 slots at a time, so each process's bits are read once
 * for all of them.
 *
 * A slot that is DUE stays DUE in all its states, and is retired where another slot would become
 * free.
 *
 * All accesses are sequentially consistent: each step orders a process's own store before its load
 * of a word that another process stores.
 */
#include <errno.h>
#include "common/clock.h"
#include "far/tree.h"

static struct tree_process *counts(struct tree *t, uint32_t p)
{
        return &tree_common(t->units)->process[p];
}

static _Atomic uint64_t *bits_of(struct tree *t, uint32_t p, uint64_t slot)
{
        return t->bits + ((uint64_t)slot_slab(slot) * TREE_PROCESSES + p) * (SLAB_PAGES / 64) +
               slot_page(slot) / 64;
}
static uint64_t bit_of(uint64_t slot) { return 1ull << (slot % 64); }

/* Of the 64 slots from `first` on: those of `set` that some process holds, a set.  A process that
 * never touched the chunk has no bits there: do not allocate a page of the file by reading them. */
static uint64_t held_of(struct tree *t, uint64_t first, uint64_t set)
{
        struct slab_map *map = tree_map(t->units, slot_slab(first));
        uint32_t n = atomic_load(&tree_common(t->units)->numbers);
        uint64_t held = 0;

        for (uint32_t p = 0; p < n && set & ~held; p++)
                if (chunk_touched(map, p, slot_chunk(first)))
                        held |= atomic_load(bits_of(t, p, first));
        return held & set;
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

/* The word is CHECK of this process.  True: the check has ended, and *freed is one more if the slot
 * is free now.  False: the slot's holders must be read again. */
static bool end_check(struct tree *t, uint64_t slot, bool held, uint64_t *freed)
{
        slot_word_t *word = slot_word(t->units, slot);
        const uint16_t due = atomic_load(word) & SLOT_DUE, mine = SLOT_CHECK | due | t->self;
        uint16_t seen = mine;

        if (!atomic_compare_exchange_strong(word, &seen, due | (held ? SLOT_SHARED : SLOT_FREE))) {
                /* AGAIN is cleared before the bits are read again */
                atomic_store(word, mine);
                return false;
        }
        if (!held && !due) {
                chunk_reopen(tree_map(t->units, slot_slab(slot)), slot_chunk(slot));
                ++*freed;
        }
        return true;
}

/* Of the 64 slots from `first` on, the words of those in `set` are CHECK of this process.  Returns
 * how many of them became free. */
static uint64_t finish_checks(struct tree *t, uint64_t first, uint64_t set)
{
        uint64_t freed = 0;

        while (set) {
                const uint64_t held = held_of(t, first, set);
                for (uint64_t left = set; left; left &= left - 1) {
                        unsigned i = (unsigned)__builtin_ctzll(left);
                        if (end_check(t, first + i, held >> i & 1, &freed))
                                set &= ~(1ull << i);
                }
        }
        return freed;
}

/* After a holder's bit was cleared.  True: the word is CHECK of this process now. */
static bool begin_check(struct tree *t, uint64_t slot)
{
        slot_word_t *word = slot_word(t->units, slot);
        uint16_t seen = atomic_load(word);

        chunk_touch(tree_map(t->units, slot_slab(slot)), t->self, slot_chunk(slot));
        for (;;) {
                uint16_t due = seen & SLOT_DUE;
                if (seen == (SLOT_SHARED | due)) {
                        if (atomic_compare_exchange_strong(word, &seen,
                                                           (uint16_t)(SLOT_CHECK | due | t->self)))
                                return true;
                } else if ((seen & SLOT_STATE) == SLOT_CHECK && !(seen & SLOT_AGAIN)) {
                        if (atomic_compare_exchange_strong(word, &seen,
                                                           (uint16_t)(seen | SLOT_AGAIN)))
                                return false;
                } else {
                        /* Another process has freed the slot, and it may have been taken since; or
                         * the process that checks will look again anyway. */
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
                /* In this order: a process that holds slots counts one at any time
                 * (has_unasked()). */
                atomic_fetch_add(&counts(t, t->self)->lent, 1);
                atomic_fetch_add(&counts(t, t->self)->shared, 1);
                atomic_fetch_sub(&counts(t, t->self)->owned, 1);
                /* No write is under way, so no other thread changes the word. */
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
                if (begin_check(t, s))
                        finish_checks(t, s & ~63ull, bit_of(s));
        }
        return err;
}

/* Writes of the process that is buried may still arrive at nodes in `uncut`: their copies of its
 * slots are not read again. */
static void spoil_copies(struct tree *t, uint64_t slot)
{
        const struct tree_slab *s = &t->head->slab[slot_slab(slot)];
        struct slab_map *map = tree_map(t->units, slot_slab(slot));
        uint64_t uncut = atomic_load(&tree_common(t->units)->uncut);

        for (uint32_t k = 0; uncut && k < atomic_load(&map->places); k++)
                if (uncut >> s->place[k].node & 1)
                        atomic_fetch_and(&map->good[k][slot_page(slot) / 64], ~bit_of(slot));
}

/* p died during its check, or while it buried another process: this process finishes the check. */
static bool take_check_over(struct tree *t, uint32_t p, uint64_t slot)
{
        slot_word_t *word = slot_word(t->units, slot);
        uint16_t seen = atomic_load(word);

        while ((seen & SLOT_STATE) == SLOT_CHECK && (seen & SLOT_NUMBER) == p)
                if (atomic_compare_exchange_strong(
                            word, &seen, (uint16_t)(SLOT_CHECK | (seen & SLOT_DUE) | t->self)))
                        return true;
        return false;
}

/* Of the 64 slots from `first` on; *shared: those that may have other holders, a set. */
static uint64_t bury_owned(struct tree *t, uint32_t p, uint64_t first, uint64_t *shared)
{
        uint64_t freed = 0;

        *shared = 0;
        for (unsigned i = 0; i < 64; i++) {
                slot_word_t *word = slot_word(t->units, first + i);
                const uint16_t seen = atomic_load(word), due = seen & SLOT_DUE;
                if (seen == (SLOT_OWNED | due | p)) {
                        spoil_copies(t, first + i);
                        atomic_store(word, due);
                        freed += !due;
                }
                *shared |= (uint64_t)!!(seen & SLOT_SHARED) << i;
        }
        return freed;
}

static uint64_t bury_64(struct tree *t, uint32_t p, uint64_t first)
{
        const uint64_t had = atomic_load(bits_of(t, p, first));
        uint64_t shared, checks = 0, freed = bury_owned(t, p, first, &shared);

        if (had)
                atomic_fetch_and(bits_of(t, p, first), ~had);
        /* p, or a process that was burying it, may have died after p's bit was cleared and before
         * the check for other holders.  So slots that no process holds are checked, too. */
        uint64_t look = had | (shared & ~held_of(t, first, shared & ~had));
        for (uint64_t left = shared; left; left &= left - 1) {
                unsigned i = (unsigned)__builtin_ctzll(left);
                if ((look >> i & 1 && begin_check(t, first + i)) ||
                    take_check_over(t, p, first + i))
                        checks |= 1ull << i;
        }
        return freed + finish_checks(t, first, checks);
}

static uint64_t bury_chunk(struct tree *t, uint32_t p, uint32_t slab, uint32_t chunk)
{
        struct slab_map *map = tree_map(t->units, slab);
        uint64_t first = (uint64_t)slab << SLAB_SHIFT | (uint64_t)chunk << CHUNK_SHIFT, freed = 0;
        uint16_t claimed = (uint16_t)(CHUNK_CLAIMED | p);

        chunk_touch(map, t->self, chunk);
        for (uint64_t s = first; s < first + CHUNK_PAGES; s += 64)
                freed += bury_64(t, p, s);
        atomic_compare_exchange_strong(&map->chunk[chunk], &claimed, CHUNK_OPEN);
        /* for the slots above, and for the slot that p freed last */
        chunk_reopen(map, chunk);
        /* [I] Last: until then a process that buries p looks here again. */
        atomic_fetch_and(&map->touched[p][chunk / 64], ~(1ull << chunk % 64));
        return freed;
}

/* Looks at the time after each chunk, so at least one is buried. */
static bool bury_slab(struct tree *t, uint32_t p, uint32_t slab, int64_t until, uint64_t *freed)
{
        _Atomic uint64_t *touched = tree_map(t->units, slab)->touched[p];

        for (uint32_t i = 0; i < SLAB_CHUNKS / 64; i++)
                for (uint64_t left = atomic_load(&touched[i]); left; left &= left - 1) {
                        *freed += bury_chunk(t, p, slab,
                                             i * 64 + (uint32_t)__builtin_ctzll(left));
                        if (now_ms() >= until)
                                return false;
                }
        return true;
}

bool tree_bury(struct tree *t, uint32_t p, int64_t until, uint64_t *freed)
{
        uint32_t repairer = p + 1, sayer = p + 1;

        for (uint32_t slab = 0; slab < t->head->nslabs; slab++)
                if (!bury_slab(t, p, slab, until, freed))
                        return false;
        atomic_store(&counts(t, p)->owned, 0);
        atomic_store(&counts(t, p)->shared, 0);
        /* p is cut off: rule 5. */
        atomic_store(&counts(t, p)->unfenced, 0);
        atomic_compare_exchange_strong(&tree_common(t->units)->repairer, &repairer, 0);
        atomic_compare_exchange_strong(&tree_common(t->units)->fewer_said, &sayer, 0);
        return true;
}
