/*
 * The allocator of a process tree: memory that all vmrun processes of a tree, and kern in each of
 * them, share.  It says which slot of the far tiers is whose.  docs/far.md ("The allocator of a
 * process tree") has the protocol, and the state that a process killed at any moment leaves behind;
 * this header has the layout of the memory that kern sees, and the only code that knows the bits of
 * a slot word.
 *
 *   a slot word  15 14   13   12 11..10  9..0
 *   FREE          0  0    0    0     0     0
 *   OWNED(p)      0  1    0   DUE    0     p    held by process number p alone, which may write
 *                                               it, but not if it is DUE
 *   SHARED        1  0    0   DUE    0     0    held by all processes whose holder bit is set;
 *                                               never written
 *   CHECK(p)      1  1  AGAIN DUE    0     p    as SHARED, while p finds out whether it still has
 *                                               a holder
 *   retired       0  0    0    1     0     0    held by no process, and never given again
 *
 * DUE: a write may still arrive in the slot, at a node that cannot fence (docs/protocol.md).  The
 * owner's I/O side sets DUE before it sends a page, and clears it when the node has answered the
 * only copy that was sent.  If the page was sent more than once, DUE stays: the slot may be read,
 * since all copies are of one page, but no other page may ever be written there.  It stays, too,
 * where a write has failed.  It is also set while the I/O side holds a slot that its process alone
 * owns (runtime/far/held.h).
 *
 * A word is changed by compare-and-swap.  Only p, or the process that buries p, changes OWNED(p)
 * and CHECK(p).  So the words themselves say which slots a dead process held, and no count can be
 * off by one.
 */
#ifndef VMRUN_ALLOCATOR_H
#define VMRUN_ALLOCATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "abi_slab.h"
#include "layout.h"

#define TREE_PROCESSES 1024             /* processes of a tree that hold slots at one time */
#define SLAB_PAGES     (1u << SLAB_SHIFT)
/* slots are searched, and set aside for one process, in chunks of 2 MiB */
#define CHUNK_SHIFT    9
#define CHUNK_PAGES    (1u << CHUNK_SHIFT)
#define SLAB_CHUNKS    (SLAB_PAGES / CHUNK_PAGES)

typedef _Atomic uint16_t slot_word_t;
#define SLOT_FREE   0u
#define SLOT_OWNED  0x4000u
#define SLOT_SHARED 0x8000u
#define SLOT_CHECK  0xc000u
#define SLOT_STATE  0xc000u
/* CHECK: a holder has released the slot since, look again */
#define SLOT_AGAIN  0x2000u
#define SLOT_DUE    0x1000u             /* a write may still arrive */
#define SLOT_NUMBER 0x03ffu

/* A chunk's word is a hint about where to look.  A killed process may leave it wrong; burying
 * corrects it. */
typedef _Atomic uint16_t chunk_word_t;
#define CHUNK_OPEN    0u
/* with a process number: other processes look elsewhere first, so that neighbours stay together */
#define CHUNK_CLAIMED 0x4000u
#define CHUNK_FULL    0x8000u

/* The map of one slab, in a sparse memory file: pages never touched take no memory. */
struct slab_map {
        slot_word_t word[SLAB_PAGES];
        chunk_word_t chunk[SLAB_CHUNKS];
        /* By process: chunks in which the process ever took, was given or checked a slot.  Set
         * before that, and cleared when the process is buried; so the process that buries it knows
         * where to look. */
        _Atomic uint64_t touched[TREE_PROCESSES][SLAB_CHUNKS / 64]
                __attribute__((aligned(PAGE_SIZE)));
        /* Of slots on remote nodes: the sum of the page that was last sent there (far/sums.c).
         * Stored by the I/O side of the slot's owner before the page is sent.  A process that reads
         * the slot has learnt that the page is there, so it sees the sum too.  If the owner dies
         * between the two, its slot stays OWNED, and no other process reads it. */
        _Atomic uint32_t sum[SLAB_PAGES] __attribute__((aligned(PAGE_SIZE)));
        /* By place, a bit a slot: the copy there is the page that was last written
         * (runtime/far/copies.h). */
        _Atomic uint64_t good[SLAB_PLACES][SLAB_PAGES / 64] __attribute__((aligned(PAGE_SIZE)));
        /* A bit a slot: no copy fitted the slot's sum, so none could be made.  Set by the process
         * that holds the slot; cleared when the slot is written, or copied after all. */
        _Atomic uint64_t unfit[SLAB_PAGES / 64];
        /* How many places of the slab have bits in `good`; 0: none, and the slab has one place.
         * Written under the tree's mutex.  Only grows, but for a place whose maker died before it
         * was listed. */
        _Atomic uint32_t places;
};

/* One cache line a process.  owned, shared: how many slots it holds, for the leak check, leasing
 * ahead, and nodes that drain (runtime/far/drain.c); nothing else relies on these counts. */
struct tree_process {
        _Atomic uint64_t owned, shared;
        /* a set of nodes: writes that this process gave up may still arrive there
         * (runtime/far/copies.h) */
        _Atomic uint64_t unfenced;
        /* Sets of nodes: they drain, as its own connection says; they are drained for this process
         * (runtime/far/drain.h). */
        _Atomic uint64_t asked, drained;
        /* Slots that went from `owned` to `shared` so far: it grows before either changes. */
        _Atomic uint64_t lent;
        uint64_t pad[2];
};
struct tree_common {
        _Atomic uint32_t numbers;       /* process numbers in use are below it; only grows */
        /* A process has read parts of pages: sums of pieces are kept from then on.  A hint, set by
         * the host. */
        _Atomic uint32_t parts_read;
        /* a set of nodes: writes of processes that were buried may still arrive there */
        _Atomic uint64_t uncut;
        _Atomic uint32_t missed;        /* counts writes that a copy missed: a hint to repair */
        /* the number, plus 1, of the process that may copy shared slots (runtime/far/held.h) */
        _Atomic uint32_t repairer;
        /* a set of nodes that are draining, or were drained: their slabs have bits.  Only grows,
         * under the tree's mutex (runtime/far/drain.h). */
        _Atomic uint64_t draining;
        /* the rate at which all processes together repair (runtime/far/walk.h) */
        _Atomic int64_t repairs_until;
        /* Pages were copied, and no process has said since that none lacks a copy
         * (runtime/far/whole.h). */
        _Atomic uint32_t copied;
        /* The number, plus 1, of the process that has said that pages have fewer copies than they
         * should, and not yet that they have them again (runtime/far/fewer.h). */
        _Atomic uint32_t fewer_said;
        uint32_t pad[4];
        struct tree_process process[TREE_PROCESSES];
};

/* A process that is not up yet: its number, and the private descriptor that keeps it alive
 * (runtime/far/tree_life.c); -1: no descriptor. */
struct tree_child { uint32_t number; int life; };

/* kern sees one run of units of SLAB_MAP_SIZE: struct tree_common, then the maps of slab 0, 1,
 * ... */
#define SLAB_MAP_SIZE (2ull << 20)
#define TREE_UNITS    (1 + SLABS_MAX)
_Static_assert(sizeof(struct slab_map) <= SLAB_MAP_SIZE &&
                       sizeof(struct tree_common) <= SLAB_MAP_SIZE,
               "each fits its unit");
_Static_assert(TREE_UNITS *SLAB_MAP_SIZE <= TREE_WINDOW_END - TREE_WINDOW,
               "all maps fit their part of the address space");
_Static_assert(TREE_PROCESSES - 1 <= SLOT_NUMBER, "process numbers fit a slot word");

static inline struct tree_common *tree_common(char *units)
{
        return (struct tree_common *)units;
}
/* Of the tree of this process, once it uses a slab. */
#define TREE_COMMON tree_common((char *)TREE_WINDOW)

static inline struct slab_map *tree_map(char *units, uint32_t slab)
{
        return (struct slab_map *)(units + (1 + (uint64_t)slab) * SLAB_MAP_SIZE);
}

static inline uint32_t slot_slab(uint64_t slot) { return (uint32_t)(slot >> SLAB_SHIFT); }
static inline uint32_t slot_page(uint64_t slot) { return (uint32_t)slot & (SLAB_PAGES - 1); }
static inline uint32_t slot_chunk(uint64_t slot) { return slot_page(slot) >> CHUNK_SHIFT; }
static inline slot_word_t *slot_word(char *units, uint64_t slot)
{
        return &tree_map(units, slot_slab(slot))->word[slot_page(slot)];
}

/* The I/O side of the slot's owner calls slot_write_begins() before it sends a page to a node that
 * cannot fence, and slot_write_ends() when the node has answered the only copy that was sent.
 * held.c calls both around a hold.  Release: other processes see DUE before the page can arrive,
 * and see it cleared only after the answer. */
static inline void slot_write_begins(slot_word_t *word)
{
        atomic_fetch_or_explicit(word, SLOT_DUE, memory_order_release);
}
static inline void slot_write_ends(slot_word_t *word)
{
        atomic_fetch_and_explicit(word, (uint16_t)~SLOT_DUE, memory_order_release);
}

static inline _Atomic uint32_t *slot_sum(char *units, uint64_t slot)
{
        return &tree_map(units, slot_slab(slot))->sum[slot_page(slot)];
}

/* Notes that process p is about to do something in a chunk. */
static inline void chunk_touch(struct slab_map *map, uint32_t p, uint32_t chunk)
{
        _Atomic uint64_t *w = &map->touched[p][chunk / 64];
        uint64_t bit = 1ull << (chunk % 64);
        if (!(atomic_load(w) & bit))
                atomic_fetch_or(w, bit);
}
static inline bool chunk_touched(struct slab_map *map, uint32_t p, uint32_t chunk)
{
        return atomic_load(&map->touched[p][chunk / 64]) >> (chunk % 64) & 1;
}

/* A slot of the chunk became FREE.  Order: the slot's word first (full barrier), then a look at the
 * chunk.  A process that finds the chunk full stores CHUNK_FULL first (full barrier), then looks at
 * the words once more.  So one of the two sees the other. */
static inline void chunk_reopen(struct slab_map *map, uint32_t chunk)
{
        uint16_t full = CHUNK_FULL;
        if (atomic_load(&map->chunk[chunk]) == CHUNK_FULL)
                atomic_compare_exchange_strong(&map->chunk[chunk], &full, CHUNK_OPEN);
}

#endif
