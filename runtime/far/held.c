/*
 * Slots that the I/O side holds while it copies or checks them.  See held.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include "abi_control.h"
#include "far/held.h"
#include "include/allocator.h"

static struct held {
        /* Guards hold[] where a thread of the program releases slots.  The I/O side writes hold[]
         * with the lock, and reads it without; `released` is written and read with the lock;
         * `writes` and `copied` belong to the I/O side alone. */
        pthread_mutex_t lock;
        struct hold {
                uint64_t slot;
                bool used;
                bool owned;             /* by this process alone, so the slot is DUE */
                bool released;          /* by the program meanwhile: its part of a shared slot */
                bool writes;            /* the page is or will be written to places that lack it */
                void (*copied)(unsigned places);        /* see held_take() */
        } hold[HELD_MOST];
        /* Copies and reads that have begun and are not over, counted by the I/O side; and whether
         * new ones may begin, stored by any thread.  Full barriers: held_stop() stores `stopped`,
         * then reads `under_way`; held_begin() writes `under_way`, then reads `stopped`. */
        _Atomic unsigned under_way;
        _Atomic bool stopped;
        struct tree *tree;              /* stored under the lease lock, before the first slab */
        bool repairer;                  /* of the I/O side: this process may be the repairer */
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

void held_in(struct tree *t) { held.tree = t; }

bool held_begin(void)
{
        atomic_fetch_add(&held.under_way, 1);
        if (!atomic_load(&held.stopped))
                return true;
        held_end();
        return false;
}

void held_end(void) { atomic_fetch_sub(&held.under_way, 1); }

bool held_is_used(unsigned i) { return held.hold[i].used; }

/* The number of the hold that has the slot; HELD_MOST: none has. */
static unsigned find_hold(uint64_t slot)
{
        unsigned i = 0;

        while (i < HELD_MOST && !(held.hold[i].used && held.hold[i].slot == slot))
                i++;
        return i;
}

bool held_has(uint64_t slot) { return find_hold(slot) < HELD_MOST; }

bool held_shares(uint64_t slot) { return tree_shares(held.tree, slot); }

bool held_writes(void)
{
        for (unsigned i = 0; i < HELD_MOST; i++)
                if (held.hold[i].used && held.hold[i].writes)
                        return true;
        return false;
}

/* ---- the one process that copies shared slots ---- */

/* Full barriers: this process sees which copies the repairer before it made good, and which of its
 * writes that one gave up. */
static bool be_repairer(void)
{
        uint32_t none = 0, self = CONTROL->tree_number + 1;
        bool is = atomic_compare_exchange_strong(&TREE_COMMON->repairer, &none, self) ||
                  none == self;

        held.repairer |= is;
        return is;
}

void held_resign(void)
{
        uint32_t self = CONTROL->tree_number + 1;
        const struct tree_process *p = &TREE_COMMON->process[CONTROL->tree_number];

        /* No page is copied to a draining node, so a write may still arrive there. */
        if (!held.repairer ||
            (atomic_load(&p->unfenced) &
             ~atomic_load_explicit(&TREE_COMMON->draining, memory_order_acquire)))
                return;
        atomic_compare_exchange_strong(&TREE_COMMON->repairer, &self, 0);
        held.repairer = false;
}

/* ---- one slot ---- */

/* No other process writes the slot from here on until held_let_go(), nor does this process unless
 * `writes`.  False: the slot is not this process's, or it may not write it. */
static bool take(struct hold *h, uint64_t slot, bool writes, void (*copied)(unsigned places))
{
        slot_word_t *word = slot_word((char *)TREE_WINDOW, slot);
        uint16_t mine = (uint16_t)(SLOT_OWNED | CONTROL->tree_number);
        bool taken;

        pthread_mutex_lock(&held.lock);
        /* Acquire: the page of a slot that another process gave to this one is there. */
        bool owned = atomic_compare_exchange_strong(word, &mine, (uint16_t)(mine | SLOT_DUE));
        taken = owned || (held_shares(slot) && (!writes || be_repairer()));
        /* The slot is DUE for good: it is retired when it is freed, so no process takes it. */
        if (!taken && !writes)
                taken = mine == (SLOT_OWNED | SLOT_DUE | CONTROL->tree_number);
        if (taken)
                *h = (struct hold){ .slot = slot, .used = true, .owned = owned, .writes = writes,
                                    .copied = copied };
        pthread_mutex_unlock(&held.lock);
        return taken;
}

int held_take(unsigned i, uint64_t slot, bool writes, void (*copied)(unsigned places))
{
        if (held_has(slot) || !held_begin())
                return -EAGAIN;
        if (take(&held.hold[i], slot, writes, copied))
                return 0;
        held_end();
        return -ESTALE;
}

void held_let_go(unsigned i)
{
        struct hold *h = &held.hold[i];
        char *units = (char *)TREE_WINDOW;

        pthread_mutex_lock(&held.lock);
        h->used = false;
        bool released = h->released;
        pthread_mutex_unlock(&held.lock);
        if (h->owned) {
                slot_write_ends(slot_word(units, h->slot));
                /* The program may have freed the slot meanwhile. */
                chunk_reopen(tree_map(units, slot_slab(h->slot)), slot_chunk(h->slot));
        }
        if (released)
                tree_release(held.tree, &h->slot, 1);
        held_end();
}

bool held_over(uint64_t slot, unsigned places)
{
        unsigned i = find_hold(slot);

        if (i == HELD_MOST)
                return true;
        held_let_go(i);
        if (!held.hold[i].copied)
                return true;
        held.hold[i].copied(places);
        return false;
}

bool held_still(unsigned i, bool *owned)
{
        uint64_t slot = held.hold[i].slot;
        uint16_t w = atomic_load(slot_word((char *)TREE_WINDOW, slot));

        *owned = (w & ~SLOT_DUE) == (SLOT_OWNED | CONTROL->tree_number);
        return *owned || held_shares(slot);
}

bool held_may_write(unsigned i)
{
        struct hold *h = &held.hold[i];

        return h->writes = h->owned || (held_shares(h->slot) && be_repairer());
}

/* ---- the program's threads ---- */

/* True: the slot is shared and held, and will be released when it is let go. */
static bool defer_release(uint64_t slot)
{
        for (unsigned i = 0; i < HELD_MOST; i++) {
                struct hold *h = &held.hold[i];
                if (h->used && !h->owned && h->slot == slot)
                        return h->released = true;
        }
        return false;
}

int held_release(const uint64_t *slots, size_t n)
{
        int err = 0;

        /* With the lock, so that take() finds no slot shared that is being released. */
        pthread_mutex_lock(&held.lock);
        for (size_t i = 0; i < n; i++)
                if (!defer_release(slots[i]) && tree_release(held.tree, &slots[i], 1) != 0)
                        err = -EINVAL;
        pthread_mutex_unlock(&held.lock);
        return err;
}

bool held_stop(void)
{
        atomic_store(&held.stopped, true);
        return atomic_load(&held.under_way) == 0;
}

void held_go_on(void) { atomic_store(&held.stopped, false); }

bool held_is_stopped(void)
{
        /* Relaxed: held_begin() has the last word. */
        return atomic_load_explicit(&held.stopped, memory_order_relaxed);
}

unsigned held_under_way(const void **word)
{
        *word = &held.under_way;
        return atomic_load(&held.under_way);
}

void held_forked(void)
{
        for (unsigned i = 0; i < HELD_MOST; i++)
                held.hold[i].used = false;
        pthread_mutex_init(&held.lock, NULL);
        atomic_store(&held.under_way, 0);
        atomic_store(&held.stopped, false);
        held.repairer = false;
}
