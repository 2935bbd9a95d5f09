/*
 * Cache frames: one 32-byte record and one atomic word a frame.
 *
 * The word says what may be done with the frame:
 *
 *   63..32 EPOCH   flush epoch that covers the last clearing of A (see evict.c)
 *   31..16 flags
 *   15..0  pins    holders that use the content through the window (gmem)
 *
 * Rules.
 *
 * [I] An evictor claims a frame (pins 0 -> CLAIMED, one CAS) before it touches the PTE.  A claimed
 * frame is not pinned, unless it is WRITING.
 *
 * A claim that is WRITING lasts as long as the node takes, in an outage for minutes, and no other
 * thread has to wait for its end: until then the evictor leaves entry and word alone, as if it had
 * only a pin.  At the end the evictor clears WRITING and looks at the pins in one CAS.  If there
 * are pins, it drops the claim and the page stays; else the claim is the evictor's alone again.
 * Content that changes meanwhile is marked dirty (D, or DIRTY by the pin).
 *
 * [I] WRITING is set after DIRTY was cleared.  Once pins may join, mprotect may move D to DIRTY
 * while TLBs still store to the page; clearing DIRTY then would lose those stores.
 *
 * A frame with pins or CLAIMED is never freed: the thread that unmaps it sets ORPHAN, and the CLOCK
 * hand frees it once it is no longer held.
 *
 * pte, slot: written only by the holder of CLAIMED (a frame off the free list starts out claimed by
 * its taker), or, for pte, by mremap under mm_lock with the PTE empty (transition.c).
 */
#ifndef VMRUN_FRAME_H
#define VMRUN_FRAME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "pager/pte.h"

#define FRAME_PINS      0xffffull
/* For the two hands (clock.c).  Changed by a holder, or by a compare-and-swap of the whole word. */
#define FRAME_STAYED    (3ull << 16)    /* times that the hot hand left it, as HIGH */
#define FRAME_STAYED_1  (1ull << 16)
#define FRAME_HOT       (1ull << 18)    /* the cold hand passes it by */
#define FRAME_OLD       (1ull << 19)    /* the cold hand has met it before */
#define FRAME_BACK      (1ull << 20)    /* its page came back soon after its eviction */
#define FRAME_WAS       (1ull << 21)    /* it was hot, until the hot hand found it unused */
#define FRAME_PASSED    (1ull << 22)    /* its eviction says nothing: a stream has passed it */
#define FRAME_CLAIMED   (1ull << 24)    /* one owner of frame and PTE: evictor, fetcher, unmapper */
#define FRAME_WRITING   (1ull << 25)    /* with CLAIMED: its write is under way; pins may join */
#define FRAME_DIRTY     (1ull << 26)    /* written through the window, or a PTE change lost D */
#define FRAME_RESIDENT  (1ull << 27)    /* in use; clear: on a free list, or never used */
#define FRAME_ORPHAN    (1ull << 28)    /* unmapped while held: the CLOCK hand frees it */
#define FRAME_LOCKED    (1ull << 29)    /* mlock: never evicted */
/* Pinned since the hand last passed: an A bit for accesses that the CPU does not see.  No TLB
 * caches it, so clearing it needs no flush, and it is set only while there is a pin. */
#define FRAME_USED      (1ull << 30)
#define FRAME_EPOCH_SHIFT 32
#define FRAME_HELD_MASK (FRAME_PINS | FRAME_CLAIMED)

#define SLOT_NONE       (~0ull)

typedef uint32_t frame_t;               /* index of a frame */
#define FRAME_NONE      (~(frame_t)0)

struct frame {
        _Atomic uint64_t word;
        /* The slot that this frame owns, which has or had its content, or SLOT_NONE; of a free
         * frame, the next one (frames.c). */
        uint64_t slot;
        /* The entry that maps it (PT pages are type-stable, so it can always be read). */
        _Atomic(pte_slot_t *) pte;
        _Atomic uint32_t below;         /* of a free frame: the batch below (frames.c).  Relaxed. */
        _Atomic uint32_t notices;       /* the list of notices of its page (notices.h) */
};
_Static_assert(sizeof(struct frame) == 32, "frames are found by their number, on both sides");

static inline bool frame_word_held(uint64_t w) { return w & FRAME_HELD_MASK; }
/* Is it claimed by an owner that excludes pins?  Such a claim is short. */
static inline bool frame_word_closed(uint64_t w)
{
        return (w & (FRAME_CLAIMED | FRAME_WRITING)) == FRAME_CLAIMED;
}
/* May it be pinned? */
static inline bool frame_word_open(uint64_t w)
{
        return (w & FRAME_RESIDENT) && !frame_word_closed(w) && (w & FRAME_PINS) != FRAME_PINS;
}

/* Clears and sets flags of a frame that the caller holds; returns the word before.  Only pins of
 * others, and ORPHAN, may change meanwhile. */
static inline uint64_t frame_change(struct frame *f, uint64_t clear, uint64_t set)
{
        uint64_t w = atomic_load_explicit(&f->word, memory_order_relaxed);

        while (!atomic_compare_exchange_weak(&f->word, &w, (w & ~clear) | set))
                ;
        return w;
}

static inline uint32_t frame_word_epoch(uint64_t w) { return (uint32_t)(w >> FRAME_EPOCH_SHIFT); }

/* Claims a resident frame that is not held; w is a recent value of the word.  Acquire: sees all
 * that the last holder did before its release. */
static inline bool frame_claim(struct frame *f, uint64_t w)
{
        if (!(w & FRAME_RESIDENT) || frame_word_held(w) || (w & FRAME_ORPHAN))
                return false;
        return atomic_compare_exchange_strong_explicit(&f->word, &w, w | FRAME_CLAIMED,
                                                       memory_order_acquire, memory_order_relaxed);
}

static inline void frame_drop_claim(struct frame *f) { atomic_fetch_and(&f->word, ~FRAME_CLAIMED); }

/* Is the page of frame f filled with zeroes ahead, and not yet touched by the program?  used: A
 * says nothing (shadow paging). */
static inline bool page_is_fresh(pte_t p, const struct frame *f, bool used)
{
        return (p & PTE_FRESH) && (p & PTE_P) && !(p & PTE_D) && (used || !(p & PTE_A)) &&
               !(atomic_load_explicit(&f->word, memory_order_relaxed) & (FRAME_DIRTY | FRAME_USED));
}

/* Pins the frame behind an entry so that its content may be used through the window, by kern or by
 * the host.  use: FRAME_USED, or 0 for a look that is to leave the page as cold as it is.  write:
 * the entry must allow writing.  Returns the frame, or FRAME_NONE: not resident, not allowed or
 * just claimed; the caller populates the page and tries again.  Order: pin first, then look at
 * the entry again; an evictor claims first (or ends its write) and then changes the entry, so
 * one of the two sees the other. */
static inline frame_t frame_pin_as(struct frame *frames, uint64_t pfn0, pte_slot_t *pte, bool write,
                                   uint64_t use)
{
        pte_t p = atomic_load(pte);
        if (pte_kind(p) != PTE_PRESENT || !pte_allows(p, write, false))
                return FRAME_NONE;
        frame_t n = (frame_t)(pte_num(p) - pfn0);
        struct frame *f = &frames[n];
        uint64_t w = atomic_load(&f->word);
        do {
                if (!frame_word_open(w) || (w & FRAME_ORPHAN))
                        return FRAME_NONE;
        } while (!atomic_compare_exchange_weak(&f->word, &w, (w + 1) | use));
        p = atomic_load(pte);
        if (pte_kind(p) == PTE_PRESENT && pte_num(p) == pfn0 + n && pte_allows(p, write, false))
                return n;
        /* If it became an orphan meanwhile, the CLOCK hand frees it. */
        atomic_fetch_sub(&f->word, 1);
        return FRAME_NONE;
}

static inline frame_t frame_pin(struct frame *frames, uint64_t pfn0, pte_slot_t *pte, bool write)
{
        return frame_pin_as(frames, pfn0, pte, write, FRAME_USED);
}

/* Ends the fetch into frame f, which is CLAIMED and names its BUSY entry.  The entry becomes what
 * `state` says: PTE_P | PTE_A for a page that a vCPU waits for, PTE_AHEAD for a page that it may
 * want, PTE_MARKER for a page whose first use is to be a fault.  With err it is REMOTE and LOST.
 * True: a vCPU sleeps on the entry.  Called where the data arrived, in kern or on the host.  A CPU
 * caches nothing about an entry that is not present, so no TLB or shadow page table needs an
 * invalidation. */
static inline bool page_fetched(struct frame *f, uint64_t pfn, pte_t state, int err)
{
        pte_slot_t *pte = atomic_load_explicit(&f->pte, memory_order_relaxed);
        pte_t keep = atomic_load_explicit(pte, memory_order_relaxed) & PTE_KEEP;
        pte_t next = err ? pte_make_remote(f->slot, keep) | PTE_LOST
                         : pfn << 12 | keep | state;

        if (err)
                f->slot = SLOT_NONE;            /* the entry owns the slot again */
        /* While the entry is BUSY, other threads may only set WAITERS.  Release: a walk that finds
         * PRESENT sees the content. */
        bool awaited = atomic_exchange(pte, next) & PTE_WAITERS;
        if (!err)
                frame_drop_claim(f);
        return awaited;
}

/* The end of a prefetch into frame f: BUSY -> state; after an error -> REMOTE, as before the
 * prefetch, and the CLOCK hand frees the frame.  If the page was unmapped meanwhile, the hand frees
 * the frame too (page_detach).  True: a vCPU sleeps on the entry. */
static inline bool page_prefetched(struct frame *f, uint64_t pfn, pte_t state, int err)
{
        pte_slot_t *pte = atomic_load_explicit(&f->pte, memory_order_relaxed);
        pte_t p = atomic_load_explicit(pte, memory_order_relaxed), keep;

        do {
                keep = p & PTE_KEEP;
                /* While the frame is claimed for this prefetch, no other entry is BUSY with it.  A
                 * stale page walk may have left A and D. */
                if (pte_kind(p) != PTE_BUSY || pte_num(p) != pfn) {
                        frame_drop_claim(f);
                        return false;
                }
                /* Release: as in page_fetched(). */
        } while (!atomic_compare_exchange_weak(
                pte, &p, err ? pte_make_remote(f->slot, keep) : pfn << 12 | keep | state));
        if (err) {
                f->slot = SLOT_NONE;    /* the entry owns the slot again */
                /* Release: the hand, which frees the frame, sees that it has no slot. */
                atomic_fetch_xor(&f->word, FRAME_CLAIMED | FRAME_ORPHAN);
        } else {
                frame_drop_claim(f);
        }
        return p & PTE_WAITERS;
}

/* wrote: the content changed.  [I] The dirty bit is set before the pin is dropped, so no evictor
 * sees the page clean. */
static inline void frame_unpin(struct frame *f, bool wrote)
{
        if (wrote)
                atomic_fetch_or(&f->word, FRAME_DIRTY);
        atomic_fetch_sub(&f->word, 1);
}

#endif
