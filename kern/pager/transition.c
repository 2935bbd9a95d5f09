/*
 * The transitions of one page.  Each is one compare-and-swap on its entry; pte.h has the table of
 * states.
 */
#include <asm-generic/errno-base.h>
#include "pager/pager.h"

static frame_t frame_of(const struct pager *pg, pte_t p)
{
        uint64_t n = pte_num(p) - pg->pfn0;
        if (n >= pg->nframes)
                env_bug("a page-table entry names a frame outside the cache", p, n);
        return (frame_t)n;
}

int page_install(struct pager *pg, pte_slot_t *pte, frame_t n, pte_t keep, pte_t ad)
{
        struct frame *f = &pg->frames[n];
        /* A stale page walk may have left A and D. */
        pte_t none = atomic_load(pte) & (PTE_A | PTE_D);

        atomic_store_explicit(&f->pte, pte, memory_order_relaxed);
        /* Release: a walk that finds the frame through the entry sees its content and its
         * record. */
        if (!atomic_compare_exchange_strong(pte, &none, pte_make_present(pg->pfn0 + n, keep, ad)))
                return -EAGAIN;
        frame_drop_claim(f);
        return 0;
}

/* A function of its own, so that a fault for which nobody else waits saves no registers for it. */
static __attribute__((cold, noinline)) void wake(struct pager *pg, frame_t n, pte_slot_t *pte)
{
        notices_over(&pg->notices, n);
        env_wake_pte(pte);
}

/* If the page of the far entry p comes back soon, says so in the frame, which nobody else may
 * change yet.  Returns the ticks that it was away, below LAGS if it does. */
static inline uint32_t note_back(const struct pager *pg, struct frame *f, pte_t p)
{
        uint32_t lag = pte_lag(atomic_load_explicit(&pg->now, memory_order_relaxed), p);

        if (lag < LAGS)
                atomic_store_explicit(&f->word, FRAME_RESIDENT | FRAME_CLAIMED | FRAME_BACK,
                                      memory_order_relaxed);
        return lag;
}

static inline void count_back(uint64_t *cnt, pte_t p, uint32_t lag)
{
        if (lag < LAGS)
                cnt[CNT_BACK_COLD + (pte_was_hot(p) ? LAGS : 0) + lag]++;
}

int page_fetch(struct pager *pg, pte_slot_t *pte, pte_t p, frame_t n, uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];
        uint32_t lag = note_back(pg, f, p);

        f->slot = pte_slot(p);          /* the page is clean as long as D and DIRTY stay clear */
        atomic_store_explicit(&f->pte, pte, memory_order_relaxed);
        /* Release: page_fetched() finds the record. */
        if (!atomic_compare_exchange_strong(pte, &p, pte_make_busy(pg->pfn0 + n, p & PTE_KEEP))) {
                f->slot = SLOT_NONE;
                return -EAGAIN;
        }
        count_back(cnt, p, lag);
        int err = env_slot_read(f->slot, n, pte);
        if (err != ENV_POSTED && page_fetched(f, pg->pfn0 + n, PTE_P | PTE_A, err))
                wake(pg, n, pte);
        return err;
}

bool page_prefetch(struct pager *pg, pte_slot_t *pte, pte_t p, frame_t n, bool marker,
                   uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];
        uint32_t lag = note_back(pg, f, p);
        pte_t busy = pte_make_busy(pg->pfn0 + n, p & PTE_KEEP) | PTE_PREF;

        f->slot = pte_slot(p);
        atomic_store_explicit(&f->pte, pte, memory_order_relaxed);
        /* Release: the thread that ends the fetch finds the record.  The entry is its own proof:
         * whatever happened meanwhile, if the entry is REMOTE with this slot, the slot holds the
         * page. */
        if (!atomic_compare_exchange_strong(pte, &p, busy)) {
                f->slot = SLOT_NONE;
                return false;
        }
        count_back(cnt, p, lag);
        env_slot_prefetch(f->slot, n, pte, marker);
        return true;
}

bool page_part(pte_slot_t *pte, pte_t p)
{
        pte_t keep = p & (PTE_KEEP | PTE_STAMP);

        return atomic_compare_exchange_strong(pte, &p, pte_make_part(pte_slot(p), keep));
}

void page_part_over(pte_slot_t *pte, int err)
{
        pte_t p = atomic_load_explicit(pte, memory_order_relaxed), keep;

        /* While the entry is PART, other threads may only set WAITERS, WANTED and the protection.
         * Release: a thread that then frees the slot, or writes to it, does so after this vCPU's
         * read of it. */
        do {
                keep = (p & (PTE_KEEP | PTE_STAMP | PTE_WANTED)) | (err ? PTE_LOST : 0);
        } while (!atomic_compare_exchange_weak(pte, &p, pte_make_remote(pte_slot(p), keep)));
        if (p & PTE_WAITERS)
                env_wake_pte(pte);
}

bool page_use_marker(pte_slot_t *pte, pte_t p)
{
        return atomic_compare_exchange_strong(
                pte, &p, pte_make_present(pte_num(p), p & PTE_KEEP, PTE_A));
}

void page_touch(pte_slot_t *pte)
{
        pte_t p = atomic_load_explicit(pte, memory_order_relaxed);

        while (pte_kind(p) == PTE_PRESENT && (p & PTE_FRESH))
                if (atomic_compare_exchange_weak(pte, &p, (p & ~PTE_FRESH) | PTE_A))
                        return;
}

enum lookahead_use page_use(const struct pager *pg, pte_slot_t *pte)
{
        pte_t p = atomic_load_explicit(pte, memory_order_relaxed);
        enum pte_kind k = pte_kind(p);

        if (k == PTE_REMOTE || k == PTE_PART || k == PTE_BUSY || k == PTE_HELD)
                return LOOKAHEAD_UNUSED;
        if (k != PTE_PRESENT || !(p & PTE_PREF))
                return LOOKAHEAD_OTHER;
        if (pg->blind)
                return LOOKAHEAD_HIDDEN;
        if (!(p & PTE_A))
                return LOOKAHEAD_UNUSED;
        /* Told once; the hand may have counted the use first. */
        return atomic_compare_exchange_strong(pte, &p, p & ~PTE_PREF) ? LOOKAHEAD_USED
                                                                      : LOOKAHEAD_OTHER;
}

/* say: bits that this vCPU sets in the entry before it sleeps. */
static void wait_for(pte_slot_t *pte, pte_t seen, pte_t say)
{
        /* A fetch is short unless the far tier is slow or the fetching thread does not run. */
        for (uint64_t begun = 0; env_wait_on(&begun); ) {
                if (atomic_load_explicit(pte, memory_order_acquire) != seen)
                        return;
                env_relax(0);
        }
        if ((seen & say) != say) {
                if (!atomic_compare_exchange_strong(pte, &seen, seen | say))
                        return;
                seen |= say;
        }
        env_wait_pte(pte, seen);
}

void page_wait(pte_slot_t *pte, pte_t seen)
{
        wait_for(pte, seen, pte_kind(seen) == PTE_PART ? PTE_WAITERS | PTE_WANTED : PTE_WAITERS);
}

void page_wait_part(pte_slot_t *pte, pte_t seen) { wait_for(pte, seen, PTE_WAITERS); }

static bool is_under_way(pte_t p) { return pte_kind(p) == PTE_BUSY || pte_kind(p) == PTE_PART; }

frame_t page_detach(struct pager *pg, pte_slot_t *pte, pte_t *old)
{
        pte_t p = atomic_load(pte);

        for (;;) {
                if (is_under_way(p) && !(p & PTE_PREF)) {
                        page_wait(pte, p);
                        p = atomic_load(pte);
                } else if (p == 0 || atomic_compare_exchange_weak(pte, &p, 0)) {
                        break;
                }
        }
        *old = p;
        switch (pte_kind(p)) {
        case PTE_REMOTE:
                env_slot_free(pte_slot(p));
                return FRAME_NONE;
        case PTE_PRESENT:
        case PTE_HELD:
                return frame_of(pg, p);
        case PTE_BUSY:                  /* page_prefetched() finds no entry, and drops the claim */
                notices_over(&pg->notices, frame_of(pg, p));
                if (p & PTE_WAITERS)
                        env_wake_pte(pte);
                return frame_of(pg, p);
        case PTE_NONE:
        case PTE_ARENA:
                return FRAME_NONE;
        default:
                env_bug("a page-table entry in no known state", p, (uint64_t)pte);
        }
}

/* May a TLB hold p, which was the entry until just now, or what was there before?  pins: the
 * caller's own on the frame.
 *
 * [I] The frame's word is read after the entry was changed.  A holder of the frame that has cleared
 * A, or made the entry HELD, did so under a claim or a pin, and stamps the frame before it lets go.
 * (A of ARENA is never cleared.) */
static bool may_be_cached(struct pager *pg, pte_t p, uint64_t pins)
{
        if ((p & PTE_P) && (p & PTE_A))
                return true;
        if (pte_kind(p) != PTE_PRESENT && pte_kind(p) != PTE_HELD)
                return false;
        uint64_t w = atomic_load(&pg->frames[frame_of(pg, p)].word);
        return (w & FRAME_HELD_MASK) != pins || !frame_flushed(w);
}

/* Takes the frame of a page that was dropped and that a TLB may hold.  If it is held, by the hand
 * or a system call's pin, it is left to the hand, which frees it once it is not held and the next
 * flush is over. */
static void drop_frame(struct pager *pg, struct dropped *d, frame_t n)
{
        struct frame *f = &pg->frames[n];
        uint64_t w = atomic_load(&f->word);

        while (!frame_claim(f, w)) {
                w = atomic_load(&f->word);
                if (frame_word_held(w) &&
                    atomic_compare_exchange_strong(
                            &f->word, &w,
                            (uint32_t)w | FRAME_ORPHAN | env_flush_next() << FRAME_EPOCH_SHIFT))
                        return;
        }
        if (f->slot != SLOT_NONE)
                env_slot_free(f->slot);
        f->slot = d->first;
        d->first = n;
        d->n++;
}

pte_t page_drop(struct pager *pg, struct frame_list *l, pte_slot_t *pte, struct dropped *d)
{
        pte_t old;
        frame_t n = page_detach(pg, pte, &old);
        bool cached = may_be_cached(pg, old, 0);

        d->flush |= cached;
        if (n != FRAME_NONE && cached)
                drop_frame(pg, d, n);
        else if (n != FRAME_NONE)
                frame_discard(pg, l, n);
        return old;
}

void dropped_free(struct pager *pg, struct frame_list *l, struct dropped *d)
{
        while (d->first != FRAME_NONE) {
                frame_t n = d->first;
                d->first = (frame_t)pg->frames[n].slot;
                pg->frames[n].slot = SLOT_NONE;
                frame_free(pg, l, n);
        }
        *d = DROPPED_NONE;
}

/* Is the frame that p names, resident, still this entry's? */
static bool still_names(const pte_slot_t *pte, pte_t p)
{
        pte_t now = atomic_load(pte);

        return (pte_kind(now) == PTE_PRESENT || pte_kind(now) == PTE_HELD) &&
               pte_num(now) == pte_num(p);
}

/* Pins the resident frame of an entry, so that no evictor acts on it.  Waits while it is claimed by
 * an evictor, which is short (a claim that is WRITING is joined), or its count of pins is full.
 * False: the entry has changed: the frame is free, or claimed for another page, which may last. */
static bool pin_wait(struct frame *f, const pte_slot_t *pte, pte_t p)
{
        uint64_t w = atomic_load(&f->word);
        for (unsigned spins = 0;; spins++) {
                if (!(w & FRAME_RESIDENT))
                        return false;
                if (!frame_word_open(w)) {
                        if (!still_names(pte, p))
                                return false;
                        env_relax(spins);
                        w = atomic_load(&f->word);
                } else if (atomic_compare_exchange_weak(&f->word, &w, w + 1)) {
                        return true;
                }
        }
}

/* A resident page under new protection; p: its entry.  False: the entry changed.  OUT *cached: may
 * a TLB hold p? */
static bool protect_resident(struct pager *pg, pte_slot_t *pte, pte_t p, pte_t prot, bool *cached)
{
        struct frame *f = &pg->frames[frame_of(pg, p)];
        pte_t keep = prot | (p & PTE_KEEP & ~PTE_PROT), next;
        bool done;

        if (!pin_wait(f, pte, p))
                return false;
        /* A=1 [I]: a TLB may still hold the old entry, so the hand must see a flush first */
        if (prot & PTE_ACCESS) {
                next = pte_make_present(pte_num(p), keep, PTE_A | (p & PTE_D));
        } else {
                next = pte_make_held(pte_num(p), keep);
                if (p & PTE_D)          /* D has no place in HELD */
                        atomic_fetch_or(&f->word, FRAME_DIRTY);
        }
        done = atomic_compare_exchange_strong(pte, &p, next);
        *cached = done && may_be_cached(pg, p, 1);
        if (*cached)                    /* until the flush a TLB may still write to the page */
                frame_stamp(f);
        frame_unpin(f, false);
        return done;
}

/* Could the program use p for an access that prot does not allow? */
static bool loses_rights(pte_t p, pte_t prot)
{
        bool access = !(prot & PTE_ACCESS);
        bool write = (p & PTE_W) && !(prot & PTE_W);
        bool exec = !(p & PTE_NX) && (prot & PTE_NX);

        return (p & PTE_P) && (access || write || exec);
}

bool page_protect(struct pager *pg, pte_slot_t *pte, pte_t prot)
{
        for (;;) {
                pte_t p = atomic_load(pte);
                bool done, cached = false;

                switch (pte_kind(p)) {
                case PTE_NONE:
                        return false;
                case PTE_BUSY:
                        page_wait(pte, p);
                        continue;
                case PTE_ARENA: {
                        /* ARENA has no frame: without access the entry is dropped, and the next
                         * fault makes it again. */
                        pte_t next = prot & PTE_ACCESS ? (p & ~PTE_PROT) | prot : 0, old = p;
                        done = atomic_compare_exchange_strong(pte, &old, next);
                        cached = may_be_cached(pg, p, 0);
                        break;
                }
                case PTE_REMOTE:
                case PTE_PART: {
                        pte_t old = p;
                        done = atomic_compare_exchange_strong(pte, &old, (p & ~PTE_PROT) | prot);
                        break;
                }
                case PTE_PRESENT:
                case PTE_HELD:
                        done = protect_resident(pg, pte, p, prot, &cached);
                        break;
                default:
                        env_bug("a page-table entry in no known state", p, (uint64_t)pte);
                }
                if (done)
                        return cached && loses_rights(p, prot);
        }
}

bool page_move(struct pager *pg, pte_slot_t *from, pte_slot_t *to)
{
        pte_t p = atomic_load(from);

        for (;;) {
                if (is_under_way(p)) {
                        page_wait(from, p);
                        p = atomic_load(from);
                } else if (p == 0) {
                        return false;
                } else if (atomic_compare_exchange_weak(from, &p, 0)) {
                        break;
                }
        }
        /* Between the two stores the hand finds no entry that names the frame and leaves the frame
         * alone.  A=1 at the new place [I]: the hand must clear it and see a flush before it may
         * assume that no TLB holds the translation. */
        bool resident = pte_has_frame(p), cached = may_be_cached(pg, p, 0);
        if (pte_kind(p) == PTE_PRESENT)
                p |= PTE_A;
        if (resident)
                atomic_store(&pg->frames[frame_of(pg, p)].pte, to);
        atomic_store(to, p);
        return cached;
}

/* Locks a pinned frame if the limit allows.  True: the frame was not locked, and now is. */
static bool lock_frame(struct pager *pg, struct frame_list *l, struct frame *f)
{
        if (atomic_load(&f->word) & FRAME_LOCKED)
                return false;
        bool may = atomic_fetch_add_explicit(&pg->locked, 1, memory_order_relaxed) <
                   pg->nframes / 2;

        uint64_t w = may ? frame_change(f, FRAME_HOT, FRAME_LOCKED) : 0;
        if (w & FRAME_HOT)              /* locked frames have a count of their own */
                frames_hot(pg, l, -1);
        if (may && !(w & FRAME_LOCKED))
                return true;
        atomic_fetch_sub_explicit(&pg->locked, 1, memory_order_relaxed);
        return false;
}

static bool unlock_frame(struct pager *pg, struct frame *f)
{
        if (!(atomic_fetch_and(&f->word, ~FRAME_LOCKED) & FRAME_LOCKED))
                return false;
        atomic_fetch_sub_explicit(&pg->locked, 1, memory_order_relaxed);
        return true;
}

bool page_set_locked(struct pager *pg, struct frame_list *l, pte_slot_t *pte, bool locked)
{
        for (;;) {
                pte_t p = atomic_load(pte);
                if (pte_kind(p) != PTE_PRESENT && pte_kind(p) != PTE_HELD)
                        return false;
                struct frame *f = &pg->frames[frame_of(pg, p)];
                if (!pin_wait(f, pte, p))
                        continue;
                /* While the frame is pinned, an entry that names it keeps naming it. */
                bool same = still_names(pte, p);
                bool changed = same && (locked ? lock_frame(pg, l, f) : unlock_frame(pg, f));
                frame_unpin(f, false);
                if (same)
                        return changed;
        }
}

/* As the hands do (clock.c), but under a pin instead of a claim: the frame is cold then.  If it
 * belongs to another page by now, that page loses no more than a hint.  p: the entry; set: a flag
 * of the frame. */
static bool cool(struct pager *pg, struct frame_list *l, pte_slot_t *pte, pte_t p, uint64_t set)
{
        struct frame *f = &pg->frames[frame_of(pg, p)];
        bool cooled = (p & PTE_A) && atomic_compare_exchange_strong(
                                             pte, &p, p & ~(PTE_A | PTE_PREF | PTE_FRESH));

        if (frame_change(f, FRAME_USED | FRAME_HOT, set) & FRAME_HOT)
                frames_hot(pg, l, -1);
        if (cooled)
                frame_stamp(f);
        frame_unpin(f, false);
        return cooled;
}

/* Sets USED, as a pin and its end would.  If the frame belongs to another page by now, that page
 * gains no more than a hint. */
void page_keep(const struct pager *pg, pte_slot_t *pte)
{
        pte_t p = atomic_load(pte);

        if (pte_kind(p) != PTE_PRESENT)
                return;
        struct frame *f = &pg->frames[frame_of(pg, p)];
        uint64_t w = atomic_load(&f->word);
        if (frame_word_open(w) && !(w & (FRAME_USED | FRAME_ORPHAN)))
                atomic_compare_exchange_strong(&f->word, &w, w | FRAME_USED);
}

void page_cool(struct pager *pg, struct frame_list *l, pte_slot_t *pte)
{
        pte_t p = atomic_load(pte);

        if (pte_kind(p) != PTE_PRESENT)
                return;
        struct frame *f = &pg->frames[frame_of(pg, p)];
        if (!(p & PTE_A) && !(atomic_load(&f->word) & (FRAME_USED | FRAME_HOT)))
                return;
        if (pin_wait(f, pte, p))
                cool(pg, l, pte, p, 0);
}

int page_set_priority(pte_slot_t *pte, pte_t priority, pte_t *seen)
{
        pte_t p = atomic_load(pte);

        for (;;) {
                enum pte_kind k = pte_kind(p);
                if (k == PTE_NONE || k == PTE_ARENA)
                        return 0;
                *seen = p;
                /* The end of a demand read looks at these bits before it changes the entry. */
                if (k == PTE_BUSY && !(p & PTE_PREF))
                        return -EAGAIN;
                if (atomic_compare_exchange_weak(pte, &p, (p & ~PTE_PRIORITY) | priority))
                        return 1;
        }
}

bool page_pass(struct pager *pg, struct frame_list *l, pte_slot_t *pte)
{
        pte_t p = atomic_load(pte);

        if (pte_kind(p) != PTE_PRESENT || !(p & PTE_A))
                return false;
        struct frame *f = &pg->frames[frame_of(pg, p)];
        uint64_t w = atomic_load(&f->word);
        if (p & PTE_HIGH)
                return false;
        /* A page that is in use, or locked, is not worth a wait. */
        if (!frame_word_open(w) || (w & (FRAME_PINS | FRAME_USED | FRAME_LOCKED)) ||
            !atomic_compare_exchange_strong(&f->word, &w, w + 1))
                return false;
        if (!cool(pg, l, pte, p, FRAME_PASSED))
                return false;
        frame_passed(pg, frame_of(pg, p));
        return (p & PTE_PREF) && !pg->blind;
}
