/*
 * The pager core: the states of a page, from first touch to eviction.
 *
 * Pure logic over atomic PTEs and frame words.  The pager's state is in cache.h.  The functions
 * that it needs from outside are in env.h: kern provides them in the guest, and the unit tests on
 * the host, where these files run under sanitizers and a model check.  The pager allocates no
 * memory, and blocks only in env_*.
 *
 * Errors: 0 or -errno.  All pte pointers are window addresses of entries in type-stable page-table
 * pages.  cnt: the caller's counters, indexed by enum vcpu_counter.
 */
#ifndef VMRUN_PAGER_H
#define VMRUN_PAGER_H

#include <stddef.h>
#include "abi_vcpu.h"
#include "pager/cache.h"
#include "pager/env.h"
#include "pager/lookahead.h"

/* --- frames (frames.c) --- */

/* Notes the flush after which no TLB can hold the translation.  The caller has changed the entry,
 * and holds the frame (claim or pin) since before that.
 *
 * [I] No stamp stays that is earlier than one that it replaced.  Two holders of a pin may have
 * cleared A one after the other, with a walk between them that set it again; then only the later
 * stamp covers the translation that this walk cached.  So the epoch is looked at again after the
 * exchange: if it is still the same, no stamp was later.  (The exchange alone does not show that:
 * where the epoch's low 32 bits are those of the frame's old stamp, a later stamp changes nothing.)
 */
static inline void frame_stamp(struct frame *f)
{
        uint64_t w = atomic_load(&f->word), next;

        do {
                next = env_flush_next();
                while (!atomic_compare_exchange_weak(&f->word, &w,
                                                     (uint32_t)w | next << FRAME_EPOCH_SHIFT))
                        ;
        } while (env_flush_next() != next);
}

/* The flush that a frame word's stamp names.  The stamp is the low 32 bits of an epoch.  One that
 * lies after the next flush is left from the counter's previous wrap: 0, a flush long done. */
static inline uint64_t frame_flush(uint64_t word)
{
        uint64_t next = env_flush_next();
        uint32_t age = (uint32_t)next - frame_word_epoch(word);

        return (int32_t)age < 0 || age >= next ? 0 : next - age;
}

/* Is that flush over? */
static inline bool frame_flushed(uint64_t word) { return env_flush_done(frame_flush(word)); }

void pager_init(struct pager *pg, struct frame *frames, uint32_t nframes, uint64_t pfn0);
/* Sets the marks: with a reserve of free frames, or with next to none. */
void pager_marks(struct pager *pg, bool reserve);
/* Sets how many vCPUs share the cache: the more, the smaller the stock of each. */
void pager_share(struct pager *pg, uint32_t vcpus);
/* Takes free frames into a vCPU's empty stock; false: there are none.  l->low: fewer than the low
 * mark are left. */
bool frame_list_refill(struct pager *pg, struct frame_list *l, uint64_t *cnt);
/* Takes a free frame, CLAIMED for the caller, from the vCPU's stock, which is refilled if it is
 * empty; FRAME_NONE: no frame is free. */
static inline frame_t frame_take(struct pager *pg, struct frame_list *l, uint64_t *cnt)
{
        if (__builtin_expect(l->free.n == 0, 0) && !frame_list_refill(pg, l, cnt))
                return FRAME_NONE;
        frame_t n = l->free.first;
        struct frame *f = &pg->frames[n];
        l->free.first = (frame_t)f->slot;
        l->free.n--;
        f->slot = SLOT_NONE;
        atomic_store_explicit(&f->pte, NULL, memory_order_relaxed);
        /* Release: the hand, which looks at any frame, must not see RESIDENT before slot and pte
         * are reset. */
        atomic_store_explicit(&f->word, FRAME_RESIDENT | FRAME_CLAIMED, memory_order_release);
        return n;
}
/* Gives a frame back that the caller holds CLAIMED and that no PTE names, with its slot, to the
 * vCPU's stock. */
void frame_free(struct pager *pg, struct frame_list *l, frame_t f);
/* The same for the cleaner, which collects a batch of them.  frames_give() gives what is collected.
 * [I] clock.c leaves nothing collected. */
void frame_collect(struct pager *pg, frame_t f);
void frames_give(struct pager *pg);
/* Is a frame free that is in no stock? */
bool frames_there(struct pager *pg);
/* Gives back all of a vCPU's stock, and tells what it counted. */
void frame_list_drain(struct pager *pg, struct frame_list *l);
/* The same for a stock that the host has taken from a vCPU: of one frame at least. */
void frames_take_back(struct pager *pg, struct frame_chain *stock);
/* For a frame that no PTE names any more and no TLB can reach: frees it, or leaves it to the CLOCK
 * hand if it is held. */
void frame_discard(struct pager *pg, struct frame_list *l, frame_t f);

/* The cleaner looks at this frame before it moves the hand.  Relaxed: hints, checked under the
 * frame's claim. */
static inline void frame_passed(struct pager *pg, frame_t n)
{
        uint32_t at = atomic_fetch_add_explicit(&pg->passed_tail, 1, memory_order_relaxed);

        atomic_store_explicit(&pg->passed[at % PASSED_FRAMES], n + 1, memory_order_relaxed);
}

/* The frames that the hands choose from: not those that are locked or, about, free. */
static inline uint32_t frames_for_hands(const struct pager *pg)
{
        uint32_t others = atomic_load_explicit(&pg->locked, memory_order_relaxed) +
                          atomic_load_explicit(&pg->high, memory_order_relaxed) +
                          atomic_load_explicit(&pg->stocked, memory_order_relaxed);

        return others < pg->nframes ? pg->nframes - others : 0;
}

/* Adds what l has to the common count of hot frames. */
static inline void frames_hot_told(struct pager *pg, struct frame_list *l)
{
        if (l->hot != 0)
                atomic_fetch_add_explicit(&pg->nhot, (uint32_t)l->hot, memory_order_relaxed);
        l->hot = 0;
}

/* As many frames became hot, or, below 0, ceased to be.  l: of the vCPU; &pg->freed: of the
 * cleaner. */
static inline void frames_hot(struct pager *pg, struct frame_list *l, int32_t by)
{
        int32_t most = (int32_t)atomic_load_explicit(&pg->batch, memory_order_relaxed);

        l->hot += by;
        if (l->hot >= most || l->hot <= -most)
                frames_hot_told(pg, l);
}

/* --- one page (transition.c) --- */
/* NONE -> PRESENT with the claimed frame f, whose content is ready.  ad: PTE_A for a page the
 * program asked for, 0 for one it did not.  0, or -EAGAIN: the entry changed, f is still the
 * caller's. */
int page_install(struct pager *pg, pte_slot_t *pte, frame_t f, pte_t keep, pte_t ad);
/* REMOTE -> BUSY -> PRESENT.  p: the REMOTE value seen; f: a frame from frame_take().  0;
 * ENV_POSTED: it is BUSY(f), and will be PRESENT; -EAGAIN: the entry changed, f is still the
 * caller's; else the far tier failed: the entry is REMOTE again, f still the caller's. */
int page_fetch(struct pager *pg, pte_slot_t *pte, pte_t p, frame_t f, uint64_t *cnt);
/* REMOTE -> BUSY, and later PRESENT or, for a marker, HELD, or REMOTE again, by
 * page_prefetched().  p and f: as for page_fetch().  False: the entry changed, f
 * is still the caller's. */
bool page_prefetch(struct pager *pg, pte_slot_t *pte, pte_t p, frame_t f, bool marker,
                   uint64_t *cnt);
/* REMOTE -> PART: until page_part_over() the slot stays as it is, and the caller reads bytes of it.
 * p: the REMOTE value seen, neither LOST nor WANTED: else threads that read parts of a page in
 * turns could keep it from a thread that needs all of it.  False: the entry changed. */
bool page_part(pte_slot_t *pte, pte_t p);
/* PART -> REMOTE, by the vCPU that made the entry PART; err: the page is not what was written, so
 * LOST. */
void page_part_over(pte_slot_t *pte, int err);
/* A marker was touched: HELD -> PRESENT.  False: the entry changed. */
bool page_use_marker(pte_slot_t *pte, pte_t p);
/* A page of zeroes that was filled in ahead counts as touched from now on. */
void page_touch(pte_slot_t *pte);
/* Was a page used since it was prefetched?  The answer is USED once a page, for the first
 * caller. */
enum lookahead_use page_use(const struct pager *pg, pte_slot_t *pte);
/* Waits, bounded, for a BUSY or PART entry to change. */
void page_wait(pte_slot_t *pte, pte_t seen);
/* Like page_wait(), for a vCPU that reads only a part itself: sets WAITERS but not WANTED, so the
 * page may stay far. */
void page_wait_part(pte_slot_t *pte, pte_t seen);

/* Any state -> NONE.  Waits while the entry is BUSY or PART, but does not wait for a prefetch.  A
 * slot is freed at once.  A frame is returned, for frame_discard() *after* the caller has flushed
 * all TLBs; else FRAME_NONE.  *old: the entry before. */
frame_t page_detach(struct pager *pg, pte_slot_t *pte, pte_t *old);
/* Pages that were dropped, until no TLB reaches them.  Their frames are claimed, and linked through
 * frame.slot: they need no memory of their own, however many they are. */
struct dropped {
        frame_t first;
        uint32_t n;
        bool flush;             /* a flush has to come before the frames are freed */
};
#define DROPPED_NONE ((struct dropped){ .first = FRAME_NONE })
/* As page_detach(), for all that the page owns; returns the entry before.  A frame that no TLB can
 * reach is freed at once. */
pte_t page_drop(struct pager *pg, struct frame_list *l, pte_slot_t *pte, struct dropped *d);
/* Frees the frames.  If d->flush, the caller has flushed all TLBs, by a flush that began after the
 * last page_drop(). */
void dropped_free(struct pager *pg, struct frame_list *l, struct dropped *d);
/* Any state but NONE: new PTE_PROT bits.  Without ACCESS, PRESENT becomes HELD, and back.  True: a
 * TLB may hold more rights than the new ones. */
bool page_protect(struct pager *pg, pte_slot_t *pte, pte_t prot);
/* Moves the page of *from to *to, which is NONE.  True: a TLB may still hold it at its old
 * place. */
bool page_move(struct pager *pg, pte_slot_t *from, pte_slot_t *to);
/* Sets or clears FRAME_LOCKED for a resident page.  True if that changed it.  Beyond half of the
 * frames no page is locked: all other pages need frames too. */
bool page_set_locked(struct pager *pg, struct frame_list *l, pte_slot_t *pte, bool locked);
/* The page will be used soon: if it is resident, the hand leaves it at its next visit. */
void page_keep(const struct pager *pg, pte_slot_t *pte);
/* Clears the page's use bits, and it is hot no more: the hand may evict it when it next passes. */
void page_cool(struct pager *pg, struct frame_list *l, pte_slot_t *pte);
/* The page of an entry, wherever it is, has this priority from now on: PTE_HIGH, PTE_LOW or 0.  1;
 * 0: there is no page; -EAGAIN: it is being fetched, OUT *seen: the entry. */
int page_set_priority(pte_slot_t *pte, pte_t priority, pte_t *seen);
/* For a page that its program has used and will hardly use again: as page_cool(), and the cleaner
 * evicts it before others, unless it is used meanwhile.  True: the page was prefetched, and its use
 * was not told yet. */
bool page_pass(struct pager *pg, struct frame_list *l, pte_slot_t *pte);

/* --- eviction (clock.c) --- */
struct clock_result {
        uint32_t freed, cleared, used, unflushed, unbegun, busy, ahead, passed, shown;
};
/* Cleaner only.  Completes finished writes, then advances the cold hand by n frames, and the hot
 * one as far as it has to, or until `most` more are freed or are written; stops early when the
 * write ring is full.  OUT freed: frames; cleared: A bits cleared; used: USED bits cleared, and
 * pages that were left or became cold; passed, shown: frames that the cold hand and the hot one
 * met; unflushed: cold frames left because their flush is not over; unbegun: of these, because it
 * had not begun; busy: frames that were claimed, by a fetch or an operation on a range, which will
 * use them or free them.  [I] If nothing was freed and no write is under way, all flushes that were
 * missing have begun: the caller may wait for the last one. */
struct clock_result clock_pass(struct pager *pg, uint32_t n, uint32_t most, uint64_t *cnt);
/* Completes finished writes, and begins none: also for fork, during which no slot may be taken back
 * and no entry that is looked at may change.  Returns how many frames were freed. */
uint32_t clock_complete(struct pager *pg, uint64_t *cnt);
/* For fork: makes a resident page clean where it is, hot or not.  [I] The caller has the pager to
 * itself: no vCPU runs the program, and the cleaner is quiesced.  All TLBs are flushed before the
 * program runs again, since they may hold D of the entry.  0; ENV_POSTED: claimed until a
 * clock_pass() has completed it; -EBUSY: it is pinned; -ENOSPC: no slot is available; else the far
 * tier failed. */
int page_write_back(struct pager *pg, pte_slot_t *pte, uint64_t *cnt);
/* Direct reclaim, by a vCPU that is out of frames: advances the hand and evicts a few pages, those
 * that take no exit.  Their frames go to its list l.  Returns how many. */
uint32_t clock_reclaim(struct pager *pg, struct sweeper *s, struct frame_list *l, uint64_t *cnt);

#endif
