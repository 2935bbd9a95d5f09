/*
 * Notices: who wants to know that a page has come has a word counted down (hints.h, HINT_COUNTED).
 *
 * A notice hangs on the frame into which the page is on its way.  Whoever ends that, in kern or on
 * the host, changes the entry first, and then looks at the frame's list (notices_over).  The word
 * is in a frame that the notice pins, so that it can be reached from both sides, whatever the
 * program does with its mapping.
 *
 * [I] A notice on a frame's list whose entry is BUSY with this frame is seen by whoever ends that:
 * the notice is put on the list (full barrier), then the entry is looked at; the other changes the
 * entry (full barrier), then looks at the list.  The end of a prefetch always looks.  The end of a
 * demand read looks only if the entry has WAITERS, which costs its path nothing: so that is set.
 *
 * [I] A notice whose entry is not BUSY with the frame is counted down by whoever takes the list;
 * any other is put back.  So a thread that is late, and takes the list when the frame has another
 * page, tells nobody too early.
 *
 * The word is counted up before the notice is on a list, and down before the notice is free again.
 */
#ifndef VMRUN_NOTICES_H
#define VMRUN_NOTICES_H

#include <stddef.h>
#include "pager/frame.h"

#define NOTICES 1024

struct notice {
        _Atomic uint32_t used;          /* 1: somebody's */
        _Atomic uint32_t next;          /* on its frame's list: index + 1; 0: the last */
        /* Written before it is on a list.  Others may read them at any time, as hints. */
        _Atomic uint32_t frame;         /* of the page */
        _Atomic uint32_t pinned;        /* of the word */
        _Atomic uint64_t pte, word;     /* addresses in the window */
};

/* Zeroed memory is the initial state. */
struct notices {
        _Atomic uint32_t count;         /* in use */
        _Atomic uint32_t added;         /* ever; moves before a word is counted up */
        struct notice notice[NOTICES];
};

/* What both sides know of the cache. */
struct notices_of { struct notices *table; struct frame *frames; uint64_t pfn0; };

static inline uint32_t notice_read(const _Atomic uint32_t *x)
{
        return atomic_load_explicit(x, memory_order_relaxed);
}

static inline pte_slot_t *notice_entry(const struct notice *n)
{
        return (pte_slot_t *)atomic_load_explicit(&n->pte, memory_order_relaxed);
}

/* Is its page still on its way?  *p: the entry. */
static inline bool notice_waits(const struct notices_of *o, const struct notice *n, pte_t *p)
{
        *p = atomic_load(notice_entry(n));
        return pte_kind(*p) == PTE_BUSY && pte_num(*p) == o->pfn0 + notice_read(&n->frame);
}

/* Puts it on its frame's list.  False: its page is not on its way any more, and somebody has to
 * look at the list. */
static inline bool notice_hang(const struct notices_of *o, struct notice *n)
{
        struct frame *f = &o->frames[notice_read(&n->frame)];
        uint32_t first = atomic_load(&f->notices);
        pte_t p;

        do
                atomic_store_explicit(&n->next, first, memory_order_relaxed);
        while (!atomic_compare_exchange_weak(&f->notices, &first,
                                             (uint32_t)(n - o->table->notice) + 1));
        while (notice_waits(o, n, &p))
                if ((p & (PTE_PREF | PTE_WAITERS)) ||
                    atomic_compare_exchange_weak(notice_entry(n), &p, p | PTE_WAITERS))
                        return true;
        return false;
}

/* Its page has come, or will not. */
static inline void notice_over(const struct notices_of *o, struct notice *n)
{
        _Atomic uint32_t *word =
                (_Atomic uint32_t *)atomic_load_explicit(&n->word, memory_order_relaxed);

        /* Release: who sees the count finds the page. */
        atomic_fetch_sub(word, 1);
        frame_unpin(&o->frames[notice_read(&n->pinned)], true);
        atomic_fetch_sub_explicit(&o->table->count, 1, memory_order_relaxed);
        atomic_store_explicit(&n->used, 0, memory_order_release);
}

static inline void notices_look(const struct notices_of *o, frame_t frame)
{
        bool again;

        do {
                uint32_t at = atomic_exchange(&o->frames[frame].notices, 0);
                again = false;
                while (at) {
                        struct notice *n = &o->table->notice[at - 1];
                        pte_t p;
                        at = notice_read(&n->next);
                        if (!notice_waits(o, n, &p))
                                notice_over(o, n);
                        else if (!notice_hang(o, n))
                                again = true;
                }
        } while (again);
}

/* To be called when the entry that was BUSY with this frame has changed. */
static inline void notices_over(const struct notices_of *o, frame_t frame)
{
        if (atomic_load(&o->frames[frame].notices))
                notices_look(o, frame);
}

/* The same for one that knows the entry alone: it had WAITERS. */
static inline void notices_over_at(const struct notices_of *o, const pte_slot_t *pte)
{
        if (!atomic_load(&o->table->count))
                return;
        for (uint32_t i = 0; i < NOTICES; i++) {
                const struct notice *n = &o->table->notice[i];
                /* It may be another's by now: then that one's list is looked at for nothing. */
                if (atomic_load(&n->used) && notice_entry(n) == pte)
                        notices_over(o, notice_read(&n->frame));
        }
}

/* One that nobody uses.  Of `most` at a time. */
static inline struct notice *notice_take(struct notices *t, uint32_t most)
{
        uint32_t from = notice_read(&t->added);

        if (atomic_fetch_add(&t->count, 1) < most)
                for (uint32_t i = 0; i < NOTICES; i++) {
                        struct notice *n = &t->notice[(from + i) % NOTICES];
                        uint32_t unused = 0;
                        /* Acquire: who used it last is done with it. */
                        if (!notice_read(&n->used) &&
                            atomic_compare_exchange_strong(&n->used, &unused, 1))
                                return n;
                }
        atomic_fetch_sub(&t->count, 1);
        return NULL;
}

/* If the entry is BUSY: *word is one more until it no longer is.  word: in frame `pinned`, which
 * the caller has pinned.  most: notices in use at a time.  False: it is not, or there are too
 * many. */
static inline bool notice_add(const struct notices_of *o, pte_slot_t *pte, _Atomic uint32_t *word,
                              frame_t pinned, uint32_t most)
{
        pte_t p = atomic_load(pte);
        struct notice *n = pte_kind(p) == PTE_BUSY ? notice_take(o->table, most) : NULL;

        if (!n)
                return false;
        frame_t frame = (frame_t)(pte_num(p) - o->pfn0);
        atomic_store_explicit(&n->frame, frame, memory_order_relaxed);
        atomic_store_explicit(&n->pinned, pinned, memory_order_relaxed);
        atomic_store_explicit(&n->pte, (uint64_t)pte, memory_order_relaxed);
        atomic_store_explicit(&n->word, (uint64_t)word, memory_order_relaxed);
        atomic_fetch_add(&o->frames[pinned].word, 1);
        atomic_fetch_add(&o->table->added, 1);
        atomic_fetch_add(word, 1);
        if (!notice_hang(o, n))
                notices_look(o, frame);
        return true;
}

/* One that counts this word down (NULL: any word); from *i on.  A hint. */
static inline struct notice *notice_find(struct notices *t, uint32_t *i, const void *word)
{
        for (; *i < NOTICES; ++*i) {
                struct notice *n = &t->notice[*i];
                if (atomic_load_explicit(&n->used, memory_order_acquire) &&
                    (!word || atomic_load_explicit(&n->word, memory_order_relaxed) ==
                                      (uint64_t)word))
                        return n;
        }
        return NULL;
}

#endif
