/*
 * Notices: a program that wants to know when pages have come gives a word that is counted down for
 * each of them (hints.h, HINT_COUNTED).
 *
 * A notice hangs on the frame into which the page is on its way.  The thread that ends the fetch,
 * in kern or on the host, changes the entry first, and then looks at the frame's list
 * (notices_over).  The word is in a frame that the notice pins, so that it can be reached from both
 * sides, whatever the program does with its mapping.
 *
 * [I] The thread that ends a fetch sees each notice on the frame's list whose entry is BUSY with
 * this frame: a vCPU puts the notice on the list (full barrier), then looks at the entry; that
 * thread changes the entry (full barrier), then looks at the list.  The end of a prefetch always
 * looks.  The end of a demand read looks only if the entry has WAITERS, which costs its path
 * nothing: so a notice sets WAITERS.
 *
 * [I] The thread that takes the list counts down each notice whose entry is not BUSY with the
 * frame, and puts the others back.  So a thread that is late, and takes the list when the frame has
 * another page, counts no word down too early.
 *
 * The word is counted up before the notice is on a list, and down before the notice is free again.
 */
#ifndef VMRUN_NOTICES_H
#define VMRUN_NOTICES_H

#include <stddef.h>
#include "pager/frame.h"

#define NOTICES 1024

struct notice {
        _Atomic uint32_t used;          /* 1: in use */
        _Atomic uint32_t next;          /* on its frame's list: index + 1; 0: the last */
        /* Written before the notice is on a list.  Other threads may read these at any time, as
         * hints. */
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

/* The cache, as kern and the host both know it. */
struct notices_of { struct notices *table; struct frame *frames; uint64_t pfn0; };

static inline uint32_t notice_read(const _Atomic uint32_t *x)
{
        return atomic_load_explicit(x, memory_order_relaxed);
}

static inline pte_slot_t *notice_entry(const struct notice *n)
{
        return (pte_slot_t *)atomic_load_explicit(&n->pte, memory_order_relaxed);
}

/* Is the page of the notice still on its way?  *p: the entry. */
static inline bool notice_waits(const struct notices_of *o, const struct notice *n, pte_t *p)
{
        *p = atomic_load(notice_entry(n));
        return pte_kind(*p) == PTE_BUSY && pte_num(*p) == o->pfn0 + notice_read(&n->frame);
}

/* Puts the notice on its frame's list.  False: its page is not on its way any more, and the caller
 * has to look at the list. */
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

/* The page of the notice has come, or will not come: counts its word down. */
static inline void notice_over(const struct notices_of *o, struct notice *n)
{
        _Atomic uint32_t *word =
                (_Atomic uint32_t *)atomic_load_explicit(&n->word, memory_order_relaxed);

        /* Release: a thread that sees the count finds the page. */
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

/* Called when the entry that was BUSY with this frame has changed. */
static inline void notices_over(const struct notices_of *o, frame_t frame)
{
        if (atomic_load(&o->frames[frame].notices))
                notices_look(o, frame);
}

/* Takes an unused notice; NULL if `most` are in use. */
static inline struct notice *notice_take(struct notices *t, uint32_t most)
{
        uint32_t from = notice_read(&t->added);

        if (atomic_fetch_add(&t->count, 1) < most)
                for (uint32_t i = 0; i < NOTICES; i++) {
                        struct notice *n = &t->notice[(from + i) % NOTICES];
                        uint32_t unused = 0;
                        /* Acquire: the last user of the notice is done with it. */
                        if (!notice_read(&n->used) &&
                            atomic_compare_exchange_strong(&n->used, &unused, 1))
                                return n;
                }
        atomic_fetch_sub(&t->count, 1);
        return NULL;
}

/* If the entry is BUSY: *word is one more until the entry no longer is.  word: in frame `pinned`,
 * which the caller has pinned.  most: notices in use at a time.  False: the entry is not BUSY, or
 * `most` notices are in use. */
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

/* A notice in use, from number *i on, that counts this word down (NULL: any word).  A hint. */
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
