/*
 * Eviction: CLOCK with a second chance, over the frame words.
 *
 * [I] x86 caches a translation only after setting A in its entry (Intel SDM vol. 3A 4.10.2.3, 4.8).
 * So if A was cleared, every TLB was flushed since, and A is still 0 when a compare-and-swap takes
 * the entry away, then no TLB holds the translation, and the eviction needs no flush of its own.
 * The flush that covers a clearing is the first flush that begins after it: its epoch is read after
 * A was cleared and stamped into the frame word, and a claim keeps every evictor away in between.
 * The rule holds for D too: a TLB that does not hold the entry must walk, and the walk sets A (and
 * D, for a write) with a locked operation, so "A=0, D=1 -> A=0, D=0" loses no write.
 *
 * A prefetched page enters with A=0 and epoch 0: no CPU has ever used its translation.
 *
 * A page of high priority is left for some more visits of the hand before it is evicted.  The
 * number of visits is fixed: if all pages have high priority, the evictions only come that many
 * turns later.  A page of low priority is evicted as soon as the flush is over that covers its
 * first visit.
 *
 * A page that only system calls use never gets A.  Their pins set USED in the frame word, which
 * counts as A does and is cleared with it.
 */
#include <asm-generic/errno-base.h>
#include "abi_stats.h"
#include "pager/pager.h"

/* Takes a slot away from a resident page, which is dirty from then on.  When the far tiers are
 * full, the only slots left to use hold second copies of resident pages, and are read by no other
 * process.
 *
 * No count says how many such slots there are: a fetch would have to keep it, and other processes
 * change it when they end.  So after a search that found no slot, the hand makes about one turn
 * before the next search.  Else each dirty page that the hand meets would cost a look at all
 * frames. */
static uint64_t slot_take_back(struct pager *pg)
{
        if (pg->slot_pause)
                return SLOT_NONE;
        for (uint32_t i = 0; i < pg->nframes; i++) {
                uint32_t n = pg->slot_hand;
                pg->slot_hand = n + 1 == pg->nframes ? 0 : n + 1;
                struct frame *f = &pg->frames[n];
                if (!frame_claim(f, atomic_load(&f->word)))
                        continue;
                uint64_t slot = f->slot;
                if (slot != SLOT_NONE && !env_slot_writable(slot))
                        slot = SLOT_NONE;
                else
                        f->slot = SLOT_NONE;
                if (slot != SLOT_NONE)
                        atomic_fetch_or(&f->word, FRAME_DIRTY);
                frame_drop_claim(f);
                if (slot != SLOT_NONE)
                        return slot;
        }
        pg->slot_pause = pg->nframes;
        return SLOT_NONE;
}

static bool has_slot(const struct frame *f)
{
        return f->slot != SLOT_NONE && env_slot_writable(f->slot);
}

/* Gives a claimed page a slot that this process may write to: its own, or the spare one. */
static bool get_slot(struct frame *f, uint64_t *spare)
{
        uint64_t old = f->slot;

        if (has_slot(f))
                return true;
        if (*spare == SLOT_NONE)
                return false;
        f->slot = *spare;
        *spare = SLOT_NONE;
        if (old != SLOT_NONE)           /* now only other processes hold it */
                env_slot_free(old);
        return true;
}

/* [I] No claim is held here: a new slab is leased by an exit, in which the host may wait for a
 * node, and pins wait for claims. */
static bool get_spare(struct pager *pg)
{
        pg->spare_slot = env_slot_alloc();
        if (pg->spare_slot == SLOT_NONE)
                pg->spare_slot = slot_take_back(pg);
        return pg->spare_slot != SLOT_NONE;
}

static void drop_spare(uint64_t *spare)
{
        if (*spare != SLOT_NONE)
                env_slot_free(*spare);
        *spare = SLOT_NONE;
}

/* As get_slot(), for a vCPU that reclaims: without an exit, and only where its write is no
 * ENV_POSTED. */
static bool get_slot_directly(struct frame *f)
{
        if (f->slot == SLOT_NONE)
                f->slot = env_slot_take();
        return has_slot(f) && !env_slot_posted(f->slot);
}

/* Makes a claimed page clean, which has a slot of its own.  No CPU writes to it now: it is cold, or
 * no program thread runs.  p: the entry.  0: done; ENV_POSTED: under way; else it failed. */
static int write_back(struct pager *pg, frame_t n, pte_slot_t *pte, pte_t p, uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];

        if ((p & PTE_D) && !atomic_compare_exchange_strong(pte, &p, p & ~PTE_D)) {
                atomic_fetch_or(&f->word, FRAME_DIRTY); /* the new slot holds nothing yet */
                return -EAGAIN;
        }
        /* No pin can set DIRTY again: the frame is not WRITING yet. */
        atomic_fetch_and(&f->word, ~FRAME_DIRTY);
        int err = env_slot_write(f->slot, n);
        if (err < 0) {
                atomic_fetch_or(&f->word, FRAME_DIRTY);
                return err;
        }
        cnt[CNT_WRITEBACK]++;
        return err;
}

/* The write of a claimed frame was posted. */
static void write_posted(struct pager *pg, frame_t n)
{
        pg->writing++;
        atomic_fetch_or(&pg->frames[n].word, FRAME_WRITING);
}

/* The write is over.  True: the claim excludes pins again, as before the write.  False: the claim
 * is dropped, because the frame was pinned meanwhile.  Acquire: sees all that holders of a pin did
 * before they dropped it. */
static bool write_over(struct pager *pg, frame_t n)
{
        struct frame *f = &pg->frames[n];
        uint64_t w = atomic_load(&f->word), next;

        pg->writing--;
        do {
                next = w & ~(w & FRAME_PINS ? FRAME_WRITING | FRAME_CLAIMED : FRAME_WRITING);
        } while (!atomic_compare_exchange_weak(&f->word, &w, next));
        return next & FRAME_CLAIMED;
}

/* PRESENT or HELD -> REMOTE or NONE for a claimed, clean, cold page. */
static bool unmap_clean(struct frame *f, pte_slot_t *pte, pte_t p)
{
        pte_t keep = p & PTE_KEEP;
        pte_t next = f->slot != SLOT_NONE ? pte_make_remote(f->slot, keep) : 0;

        if (!atomic_compare_exchange_strong(pte, &p, next))
                return false;
        if (next == 0 && (p & PTE_CHARGED))
                env_uncharge_page();
        f->slot = SLOT_NONE;            /* the entry owns the slot now */
        return true;
}

/* HELD has no A: the program cannot use it. */
static bool is_cold(pte_t p, uint64_t w) { return !(p & PTE_A) && !(w & FRAME_USED); }

/* The entry that names frame n, if it is in a state that can be evicted. */
static pte_slot_t *entry_of(struct pager *pg, frame_t n, pte_t *p)
{
        pte_slot_t *pte = atomic_load(&pg->frames[n].pte);
        if (!pte)
                return NULL;
        *p = atomic_load(pte);
        enum pte_kind k = pte_kind(*p);
        return (k == PTE_PRESENT || k == PTE_HELD) && pte_num(*p) == pg->pfn0 + n ? pte : NULL;
}

/* How often the hand leaves a cold page where it is.  A page that was brought in ahead has until
 * the hand's next visit to be used. */
#define HIGH_VISITS 2
static uint32_t visits(pte_t p)
{
        return (p & PTE_PREF ? 1 : 0) + (p & PTE_HIGH ? HIGH_VISITS : 0);
}

/* First visit: clears A and USED. */
static void second_chance(struct pager *pg, frame_t n, uint64_t w, struct clock_result *r)
{
        struct frame *f = &pg->frames[n];
        pte_t p;

        if (!frame_claim(f, w))
                return;
        pte_slot_t *pte = entry_of(pg, n, &p);
        pte_t seen = p;
        bool cleared = pte && (p & PTE_A) &&
                       atomic_compare_exchange_strong(pte, &p, p & ~(PTE_A | PTE_PREF | PTE_FRESH));
        if (cleared)
                frame_stamp(f);
        frame_set_spared(f, 0);
        if (pte && (seen & PTE_LOW))
                frame_passed(pg, n);
        r->cleared += cleared;
        r->used += (w & FRAME_USED) != 0;
        r->ahead += cleared && (seen & PTE_PREF) && !pg->blind;
        atomic_fetch_and(&f->word, ~(FRAME_USED | FRAME_CLAIMED));
}

/* Unmaps a claimed page if it is (still) cold and clean; the frame stays claimed, to be freed.
 * Else drops the claim. */
static bool take_off(struct pager *pg, frame_t n)
{
        struct frame *f = &pg->frames[n];
        pte_t p;
        /* Read under the claim: entry, stamp and mlock (which is set under a pin). */
        pte_slot_t *pte = entry_of(pg, n, &p);
        uint64_t w = atomic_load(&f->word);

        if (pte && is_cold(p, w) && !(p & PTE_D) && frame_spared(f) >= visits(p) &&
            !(w & (FRAME_DIRTY | FRAME_LOCKED)) && frame_flushed(w) && unmap_clean(f, pte, p))
                return true;
        frame_drop_claim(f);
        return false;
}

/* True: the hand leaves this cold page, because it has visits left, or because its frame is
 * held. */
static bool spare(struct frame *f, pte_t p, uint64_t w)
{
        if (!frame_claim(f, w))
                return true;
        uint32_t spared = frame_spared(f);
        bool left = spared < visits(p);
        frame_set_spared(f, spared + left);
        frame_drop_claim(f);
        return left;
}

/* Frees a claimed frame that no entry names: to the list of the vCPU that reclaims; NULL: for
 * all. */
static void give(struct pager *pg, struct frame_list *l, frame_t n)
{
        if (l)
                frame_free(pg, l, n);
        else
                frame_collect(pg, n);
}

/* What came of an eviction.  LACKS_SLOT: the cleaner needs a spare slot first. */
enum evicted { KEPT, EVICTED, LACKS_SLOT };

/* Writes a claimed page that is cold and dirty.  EVICTED: it is clean, and still claimed. */
static enum evicted clean(struct pager *pg, struct frame_list *l, frame_t n, pte_slot_t *pte,
                          pte_t p, uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];

        if (!(l ? get_slot_directly(f) : get_slot(f, &pg->spare_slot))) {
                frame_drop_claim(f);
                if (!l)
                        return LACKS_SLOT;
                frame_passed(pg, n);    /* the cleaner can; its flush is over */
                atomic_fetch_add_explicit(&pg->passed_covered, 1, memory_order_relaxed);
                return KEPT;
        }
        int err = write_back(pg, n, pte, p, cnt);
        if (err == ENV_POSTED) {
                write_posted(pg, n);    /* claimed until reap_writes() */
                return KEPT;
        }
        if (err < 0) {
                frame_drop_claim(f);
                if (err != -EAGAIN && !l)
                        pg->unwritable++;
                return KEPT;
        }
        return EVICTED;
}

/* Second visit: cold since a completed flush.  EVICTED: the frame is free, as give() does it.  With
 * l nothing is posted. */
static inline __attribute__((always_inline)) enum evicted try_evict(struct pager *pg,
                                                                    struct frame_list *l,
                                                                    frame_t n, uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];
        enum vcpu_counter counter = CNT_EVICTED_CLEAN;
        pte_t p;

        if (!frame_claim(f, atomic_load(&f->word)))
                return KEPT;
        pte_slot_t *pte = entry_of(pg, n, &p);
        uint64_t w = atomic_load(&f->word);
        if (pte && is_cold(p, w) &&
            ((p & PTE_D) || (w & FRAME_DIRTY)) && !(w & FRAME_LOCKED) && frame_flushed(w)) {
                enum evicted cleaned = clean(pg, l, n, pte, p, cnt);
                if (cleaned != EVICTED)
                        return cleaned;
                counter = CNT_EVICTED_DIRTY;
        }
        if (!take_off(pg, n))
                return KEPT;
        cnt[counter]++;
        cnt[CNT_PREFETCH_WASTED] += pte && (p & PTE_PREF);
        give(pg, l, n);
        return EVICTED;
}

/* True if the frame was freed. */
static inline __attribute__((always_inline)) bool evict(struct pager *pg, struct frame_list *l,
                                                        frame_t n, uint64_t *cnt)
{
        enum evicted e;

        /* Once more at most: with a spare slot no page lacks one. */
        while ((e = try_evict(pg, l, n, cnt)) == LACKS_SLOT && get_spare(pg))
                ;
        if (e == LACKS_SLOT)            /* the cleaner's alone: so is the count */
                pg->unwritable++;
        return e == EVICTED;
}

/* Completes writes that are over.  A page that was used or pinned meanwhile stays; the frame of a
 * page that was unmapped meanwhile is an orphan.  Returns how many frames were freed. */
static uint32_t reap_writes(struct pager *pg, uint64_t *cnt)
{
        uint32_t freed = 0;
        frame_t n;
        int err;

        while (pg->writing > 0 && (n = env_slot_written(&err)) != FRAME_NONE) {
                if (err) {
                        pg->unwritable++;
                        atomic_fetch_or(&pg->frames[n].word, FRAME_DIRTY);
                }
                if (write_over(pg, n) && take_off(pg, n)) {
                        cnt[CNT_EVICTED_DIRTY]++;
                        frame_collect(pg, n);
                        freed++;
                }
        }
        return freed;
}

/* Must a frame stay because its flush is not over? */
static bool is_unflushed(uint64_t w, struct clock_result *r)
{
        uint64_t epoch = frame_flush(w);

        if (env_flush_done(epoch))
                return false;
        r->unflushed++;
        r->unbegun += epoch == env_flush_next();
        return true;
}

/* Frees an unmapped frame that is no longer held, and that no TLB reaches. */
static bool reap_orphan(struct pager *pg, struct frame_list *l, frame_t n, uint64_t w,
                        struct clock_result *r)
{
        struct frame *f = &pg->frames[n];
        if (frame_word_held(w) || is_unflushed(w, r) ||
            !atomic_compare_exchange_strong(&f->word, &w, w | FRAME_CLAIMED))
                return false;
        give(pg, l, n);
        return true;
}

/* As many in one pass: waiters hear of them after it. */
#define PASSED_AT_ONCE 256

/* Evicts pages that streams have passed, up to the first whose flush is not over. */
static __attribute__((noinline)) void evict_passed(struct pager *pg, struct clock_result *r,
                                                   uint64_t *cnt)
{
        uint32_t tail = atomic_load_explicit(&pg->passed_tail, memory_order_relaxed);
        uint32_t most = r->freed + PASSED_AT_ONCE;

        if (tail - pg->passed_head > PASSED_FRAMES)
                pg->passed_head = tail - PASSED_FRAMES;
        for (; pg->passed_head != tail && r->freed < most && env_slot_write_room();
             pg->passed_head++) {
                _Atomic uint32_t *hint = &pg->passed[pg->passed_head % PASSED_FRAMES];
                uint32_t n = atomic_load_explicit(hint, memory_order_relaxed) - 1;
                if (n >= pg->nframes)           /* a vCPU adds it now */
                        continue;
                uint64_t w = atomic_load(&pg->frames[n].word);
                if ((w & FRAME_RESIDENT) && is_unflushed(w, r))
                        break;
                r->freed += evict(pg, NULL, n, cnt);
        }
}

/* Begins a flush if one is due.  A flush makes each vCPU reload its TLB, and a frame that the hand
 * clears is met again only a turn later: so one begins for a quarter of the cache, or because cold
 * frames that are needed wait for it. */
static void flush_if_due(struct pager *pg, const struct clock_result *r, bool needed, uint64_t *cnt)
{
        uint64_t next = env_flush_next();
        uint32_t tail = atomic_load_explicit(&pg->passed_tail, memory_order_relaxed);

        /* One has begun, which covers what was cleared before. */
        if (atomic_load_explicit(&pg->next_flush, memory_order_relaxed) != next) {
                atomic_store_explicit(&pg->next_flush, next, memory_order_relaxed);
                atomic_store_explicit(&pg->cleared, 0, memory_order_relaxed);
                atomic_store_explicit(&pg->passed_covered, tail, memory_order_relaxed);
        }
        uint32_t before = r->cleared ? atomic_fetch_add_explicit(&pg->cleared, r->cleared,
                                                                 memory_order_relaxed)
                                     : atomic_load_explicit(&pg->cleared, memory_order_relaxed);
        int32_t cleared = (int32_t)(before + r->cleared);
        /* Below 0 for a moment: another evictor may have counted what came after tail was read. */
        int32_t passed =
                (int32_t)(tail - atomic_load_explicit(&pg->passed_covered, memory_order_relaxed));
        if ((needed && r->unbegun && !r->freed) ||
            cleared + passed >= (int32_t)(pg->nframes / 4)) {
                env_flush_begin();
                cnt[passed > cleared ? CNT_BEGUN_PASSED : CNT_BEGUN_HAND]++;
        }
}

/* Frames of a piece. */
#define PIECE_MIN 8
#define PIECE_MAX 512

static uint32_t piece_size(uint32_t nframes)
{
        uint32_t n = nframes / 64;

        return n < PIECE_MIN ? PIECE_MIN : n > PIECE_MAX ? PIECE_MAX : n;
}

/* The next frame for an evictor to look at.  Evictors take the frames by pieces, so the order is
 * CLOCK's however many they are.  What an evictor that is stopped has left of its piece is met
 * again a turn later. */
static frame_t next_frame(struct pager *pg, struct sweeper *s)
{
        if (s->at >= s->end) {
                uint32_t size = piece_size(pg->nframes), pieces = (pg->nframes - 1) / size + 1;
                uint64_t piece = atomic_fetch_add_explicit(&pg->hand, 1, memory_order_relaxed);

                s->at = (uint32_t)(piece % pieces) * size;
                s->end = pg->nframes - s->at < size ? pg->nframes : s->at + size;
        }
        return s->at++;
}

/* The hand meets frame n.  l: as for give(). */
static inline __attribute__((always_inline)) void visit(struct pager *pg, struct frame_list *l,
                                                        frame_t n, struct clock_result *r,
                                                        uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];
        uint64_t w = atomic_load(&f->word);
        pte_t p;

        cnt[CNT_SCANNED]++;
        if (w & FRAME_ORPHAN) {
                r->freed += reap_orphan(pg, l, n, w, r);
                return;
        }
        if (!(w & FRAME_RESIDENT) || (w & FRAME_LOCKED) || frame_word_held(w)) {
                r->busy += (w & FRAME_RESIDENT) && frame_word_closed(w);
                return;
        }
        pte_slot_t *pte = entry_of(pg, n, &p);
        if (!pte)
                return;
        if (!is_cold(p, w)) {
                second_chance(pg, n, w, r);
        } else if ((p & (PTE_PREF | PTE_HIGH)) && spare(f, p, w)) {
                r->used++;
        } else if (!is_unflushed(w, r)) {
                r->freed += evict(pg, l, n, cnt);
        }
}

struct clock_result clock_pass(struct pager *pg, uint32_t count, uint64_t *cnt)
{
        struct clock_result r = { .freed = reap_writes(pg, cnt) };
        uint32_t steps = 0;

        env_flush_look();
        evict_passed(pg, &r, cnt);
        for (; steps < count && env_slot_write_room(); steps++)
                visit(pg, NULL, next_frame(pg, &pg->cleaner), &r, cnt);
        drop_spare(&pg->spare_slot);
        pg->slot_pause -= steps < pg->slot_pause ? steps : pg->slot_pause;
        frames_give(pg);
        flush_if_due(pg, &r, !pg->writing, cnt);
        cnt[CNT_PREFETCH_HITS] += r.ahead;
        return r;
}

uint32_t clock_complete(struct pager *pg, uint64_t *cnt)
{
        uint32_t freed = reap_writes(pg, cnt);

        frames_give(pg);
        return freed;
}

/* Takes no slot back: it could be a slot that the child already shares. */
int page_write_back(struct pager *pg, pte_slot_t *pte, uint64_t *cnt)
{
        pte_t p = atomic_load(pte);
        frame_t n = (frame_t)(pte_num(p) - pg->pfn0);
        struct frame *f = &pg->frames[n];
        uint64_t spare = has_slot(f) ? SLOT_NONE : env_slot_alloc();
        int err = -EBUSY;

        if (frame_claim(f, atomic_load(&f->word))) {
                err = get_slot(f, &spare) ? write_back(pg, n, pte, p, cnt) : -ENOSPC;
                if (err == ENV_POSTED)
                        write_posted(pg, n);
                else
                        frame_drop_claim(f);
        }
        drop_spare(&spare);
        return err;
}

/* Of a call of clock_reclaim().  Few, so that a fault stays short, and the hand does not run ahead
 * of what it has shown where the vCPU can evict little. */
#define RECLAIM_VISITS 128
#define RECLAIM_FRAMES 8

uint32_t clock_reclaim(struct pager *pg, struct sweeper *s, struct frame_list *l, uint64_t *cnt)
{
        struct clock_result r = { .freed = 0 };

        env_flush_look();
        for (unsigned i = 0; i < RECLAIM_VISITS && r.freed < RECLAIM_FRAMES; i++)
                visit(pg, l, next_frame(pg, s), &r, cnt);
        /* All evictors write to the words of flush_if_due(), so it is asked once a piece. */
        s->cleared += r.cleared;
        if (s->at >= s->end || r.unbegun) {
                r.cleared = s->cleared;
                s->cleared = 0;
                flush_if_due(pg, &r, true, cnt);
        }
        cnt[CNT_PREFETCH_HITS] += r.ahead;
        cnt[CNT_DIRECT_RECLAIM] += r.freed;
        return r.freed;
}
