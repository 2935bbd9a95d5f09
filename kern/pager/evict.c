/*
 * How a page leaves the cache: written if it is dirty, then unmapped, if it is still cold.
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
 */
#include <asm-generic/errno-base.h>
#include "pager/evict.h"

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

static void drop_slot(uint64_t *spare)
{
        if (*spare != SLOT_NONE)
                env_slot_free(*spare);
        *spare = SLOT_NONE;
}

void evict_over(struct pager *pg) { drop_slot(&pg->spare_slot); }

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

/* Does the eviction of this page tell anything of the hands' choice? */
static bool tells(pte_t p, uint64_t w) { return !(p & PTE_LOW) && !(w & FRAME_PASSED); }

/* PRESENT or HELD -> REMOTE or NONE for a claimed, clean, cold page.  w: the frame's word; cnt:
 * counts what that tells. */
static bool unmap_clean(const struct pager *pg, struct frame *f, pte_slot_t *pte, pte_t p,
                        uint64_t w, uint64_t *cnt)
{
        pte_t next = 0;
        bool told = false;

        if (f->slot != SLOT_NONE) {
                uint64_t now = atomic_load_explicit(&pg->now, memory_order_relaxed);
                pte_t stamp = (now & PTE_TICK) | (w & FRAME_WAS ? PTE_WAS : 0);
                told = tells(p, w);
                next = pte_make_remote(f->slot, (p & PTE_KEEP) | (told ? stamp : 0));
        }
        if (!atomic_compare_exchange_strong(pte, &p, next))
                return false;
        if (next == 0 && (p & PTE_CHARGED))
                env_uncharge_page();
        f->slot = SLOT_NONE;            /* the entry owns the slot now */
        cnt[w & FRAME_WAS ? CNT_GONE_HOT : CNT_GONE_COLD] += told;
        cnt[CNT_EVICTED_PASSED] += !tells(p, w);
        return true;
}

/* Unmaps a claimed page if it is (still) cold and clean; the frame stays claimed, to be freed. Else
 * drops the claim.  Entry and word were read under the claim: so the stamp is known, and mlock,
 * which is set under a pin. */
static inline __attribute__((always_inline)) bool take_off(struct pager *pg, struct frame *f,
                                                           pte_slot_t *pte, pte_t p, uint64_t w,
                                                           uint64_t *cnt)
{
        if (pte && may_go(p, w) && !(p & PTE_D) && !(w & (FRAME_DIRTY | FRAME_LOCKED)) &&
            frame_flushed(w) && unmap_clean(pg, f, pte, p, w, cnt))
                return true;
        frame_drop_claim(f);
        return false;
}

/* Only the cleaner counts. */
static void not_written(struct pager *pg)
{
        atomic_fetch_add_explicit(&pg->unwritable, 1, memory_order_relaxed);
}

void evict_give(struct pager *pg, struct frame_list *l, frame_t n)
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
                        not_written(pg);
                return KEPT;
        }
        return EVICTED;
}

/* EVICTED: the frame is free, as evict_give() does it.  With l nothing is posted. */
static enum evicted try_evict(struct pager *pg, struct frame_list *l, frame_t n, uint64_t *cnt)
{
        struct frame *f = &pg->frames[n];
        enum vcpu_counter counter = CNT_EVICTED_CLEAN;
        pte_t p;

        if (!frame_claim(f, atomic_load(&f->word)))
                return KEPT;
        pte_slot_t *pte = entry_of(pg, n, &p);
        uint64_t w = atomic_load(&f->word);
        if (pte && may_go(p, w) &&
            ((p & PTE_D) || (w & FRAME_DIRTY)) && !(w & FRAME_LOCKED) && frame_flushed(w)) {
                enum evicted cleaned = clean(pg, l, n, pte, p, cnt);
                if (cleaned != EVICTED)
                        return cleaned;
                counter = CNT_EVICTED_DIRTY;
                pte = entry_of(pg, n, &p);      /* it may have been used meanwhile */
                w = atomic_load(&f->word);
        }
        if (!take_off(pg, f, pte, p, w, cnt))
                return KEPT;
        cnt[counter]++;
        cnt[CNT_PREFETCH_WASTED] += pte && (p & PTE_PREF);
        evict_give(pg, l, n);
        return EVICTED;
}

bool evict(struct pager *pg, struct frame_list *l, frame_t n, uint64_t *cnt)
{
        enum evicted e;

        /* Once more at most: with a spare slot no page lacks one. */
        while ((e = try_evict(pg, l, n, cnt)) == LACKS_SLOT && get_spare(pg))
                ;
        if (e == LACKS_SLOT)
                not_written(pg);
        return e == EVICTED;
}

uint32_t evict_written(struct pager *pg, uint64_t *cnt)
{
        uint32_t freed = 0;
        frame_t n;
        int err;

        while (pg->writing > 0 && (n = env_slot_written(&err)) != FRAME_NONE) {
                if (err) {
                        not_written(pg);
                        atomic_fetch_or(&pg->frames[n].word, FRAME_DIRTY);
                }
                if (!write_over(pg, n))
                        continue;
                struct frame *f = &pg->frames[n];
                pte_t p;
                pte_slot_t *pte = entry_of(pg, n, &p);
                if (take_off(pg, f, pte, p, atomic_load(&f->word), cnt)) {
                        cnt[CNT_EVICTED_DIRTY]++;
                        frame_collect(pg, n);
                        freed++;
                }
        }
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
        drop_slot(&spare);
        return err;
}
