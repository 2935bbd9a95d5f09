/*
 * See repair.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <window.h>
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/far.h"
#include "far/repair.h"
#include "far/tree.h"
#include "include/tree.h"
#include "vm/vm.h"

#define SCAN     1024                   /* slots looked at in one step: some 50 us */
#define IDLE_MS  500                    /* between two steps without a pass */
#define LOOK_MS  5000                   /* between two passes because copies were missed */
#define AGAIN_MS 1000                   /* before what could not be copied is tried again */
#define BURST_MS 20                     /* of the rate, at most, after a pause */

/* Copies under way.  Written by the I/O side with the lock, which it reads without; `released` is
 * for who has the lock. */
static struct copy { uint64_t slot; bool used, owned, released; } copying[REPAIR_FRAMES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* How many; full barriers: repair_stop() stores stopped, then reads it; repair_next() the other way
 * round. */
static _Atomic unsigned under_way;
static _Atomic bool stopped;
/* A pass is to begin: said also by the thread that adds places (rebuild.c).  Release and acquire:
 * the pass sees the new place. */
static _Atomic bool wanted;
static _Atomic uint64_t pages;          /* a statistic */
static struct tree *tree;

/* The rest belongs to the I/O side. */
static uint64_t cursor;                 /* the next slot of this pass */
static bool passing, found, again;
static uint64_t copied;                 /* pages, since all copies were there */
static int64_t since;                   /* when the first of them was copied, ms */
static uint32_t seen_missed;
static int64_t next_look;               /* ms */
static int64_t budget, budget_at;       /* bytes that may be copied, and when it was counted */

static struct copies copies(void)
{
        return (struct copies){ .units = (char *)TREE_WINDOW, .self = CONTROL->tree_number };
}

static struct tree_common *common(void) { return (struct tree_common *)TREE_WINDOW; }

static bool is_idle(void)
{
        return opt.replicas < 2 || CONTROL->nslabs == 0 ||
               atomic_load_explicit(&stopped, memory_order_relaxed);
}

void repair_in(struct tree *t) { tree = t; }

void repair_wanted(void) { atomic_store_explicit(&wanted, true, memory_order_release); }

void repair_missed(void)
{
        /* Relaxed: a hint, also for other processes, which hold some of the slots too. */
        atomic_fetch_add_explicit(&common()->missed, 1, memory_order_relaxed);
}

uint64_t repair_pages(void) { return atomic_load_explicit(&pages, memory_order_relaxed); }

bool repair_holds(uint64_t slot)
{
        for (unsigned i = 0; i < REPAIR_FRAMES; i++)
                if (copying[i].used && copying[i].slot == slot)
                        return true;
        return false;
}

/* Full barriers: what the process before it made good, and gave up, is seen. */
static bool is_repairer(void)
{
        uint32_t none = 0, self = CONTROL->tree_number + 1;

        return atomic_compare_exchange_strong(&common()->repairer, &none, self) || none == self;
}

static void repair_no_more(void)
{
        uint32_t self = CONTROL->tree_number + 1;

        if (!atomic_load(&common()->process[CONTROL->tree_number].unfenced))
                atomic_compare_exchange_strong(&common()->repairer, &self, 0);
}

/* Nobody else writes the slot from here on, until let_go().  False: it is not this process's. */
static bool hold(struct copy *c, uint64_t slot)
{
        slot_word_t *word = slot_word((char *)TREE_WINDOW, slot);
        uint16_t mine = (uint16_t)(SLOT_OWNED | CONTROL->tree_number);
        bool held;

        pthread_mutex_lock(&lock);
        /* Acquire: a page that this process was given is there. */
        bool owned = atomic_compare_exchange_strong(word, &mine, (uint16_t)(mine | SLOT_DUE));
        held = owned || (tree_shares(tree, slot) && is_repairer());
        if (held)
                *c = (struct copy){ .slot = slot, .used = true, .owned = owned };
        pthread_mutex_unlock(&lock);
        return held;
}

static void let_go(struct copy *c)
{
        char *units = (char *)TREE_WINDOW;

        pthread_mutex_lock(&lock);
        c->used = false;
        bool released = c->released;
        pthread_mutex_unlock(&lock);
        if (c->owned) {
                slot_write_ends(slot_word(units, c->slot));
                /* It may have been freed meanwhile. */
                chunk_reopen(tree_map(units, slot_slab(c->slot)), slot_chunk(c->slot));
        }
        if (released)
                tree_release(tree, &c->slot, 1);
        atomic_fetch_sub(&under_way, 1);
}

void repair_done(uint64_t slot, unsigned places)
{
        for (unsigned i = 0; i < REPAIR_FRAMES; i++)
                if (copying[i].used && copying[i].slot == slot) {
                        let_go(&copying[i]);
                        break;
                }
        if (!places) {
                again = true;
                return;
        }
        atomic_fetch_add_explicit(&pages, 1, memory_order_relaxed);
        if (!copied++)
                since = now_ms();
}

static bool defers(uint64_t slot)
{
        for (unsigned i = 0; i < REPAIR_FRAMES; i++)
                if (copying[i].used && !copying[i].owned && copying[i].slot == slot)
                        return copying[i].released = true;
        return false;
}

int repair_release(const uint64_t *slots, size_t n)
{
        int err = 0;

        if (opt.replicas < 2)
                return tree_release(tree, slots, n);
        /* Under the lock, so that hold() does not find a slot shared that is just let go of. */
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < n; i++)
                if (!defers(slots[i]) && tree_release(tree, &slots[i], 1) != 0)
                        err = -EINVAL;
        pthread_mutex_unlock(&lock);
        return err;
}

unsigned repair_under_way(const void **word)
{
        *word = &under_way;
        return atomic_load(&under_way);
}

bool repair_stop(void)
{
        atomic_store(&stopped, true);
        return atomic_load(&under_way) == 0;
}

void repair_go_on(void) { atomic_store(&stopped, false); }

void repair_forked(void)
{
        for (unsigned i = 0; i < REPAIR_FRAMES; i++)
                copying[i].used = false;
        pthread_mutex_init(&lock, NULL);
        atomic_store(&under_way, 0);
        atomic_store(&stopped, false);
        atomic_store(&wanted, false);
        passing = again = false;
        cursor = 0;
}

/* ---- which slot next ---- */

static bool is_held(uint64_t slot)
{
        uint16_t w = atomic_load_explicit(slot_word((char *)TREE_WINDOW, slot),
                                          memory_order_relaxed);

        return w == (SLOT_OWNED | CONTROL->tree_number) || (w & SLOT_SHARED);
}

static uint64_t next_chunk(uint64_t slot)
{
        slot = (slot | (CHUNK_PAGES - 1)) + 1;
        return slot_page(slot) < CONTROL->slabs[slot_slab(slot)].pages
                       ? slot : (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
}

/* From the cursor on, a slot that may be copied; -1: not within so many, or the pass is over. */
static int64_t find(void)
{
        const struct copies c = copies();

        for (unsigned looked = 0; passing && looked < SCAN; ) {
                uint64_t slot = cursor;
                if (slot_slab(slot) >= CONTROL->nslabs) {
                        passing = false;
                        if (found)
                                repair_wanted();        /* to see whether that was all */
                        found = false;
                        break;
                }
                const struct far_slab *s = far_slab(slot_slab(slot));
                if (!s->copied) {
                        cursor = (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
                        continue;
                }
                if (!chunk_touched(tree_map((char *)TREE_WINDOW, slot_slab(slot)),
                                   CONTROL->tree_number, slot_chunk(slot))) {
                        cursor = next_chunk(slot);
                        looked += 8;
                        continue;
                }
                cursor = (slot + 1) % CHUNK_PAGES ? slot + 1 : next_chunk(slot);
                looked++;
                if (!is_held(slot) || !copies_wanting(&c, s, slot))
                        continue;
                if (copies_to_repair(&c, s, slot))
                        return (int64_t)slot;
                again = true;
        }
        return -1;
}

/* A pass has found nothing to copy. */
static void say_whole(int64_t now)
{
        warnx_("far memory: all nodes that answer have their copies again: %llu pages in %.1f s",
               (unsigned long long)copied, (double)(now - since) / 1000);
        copied = 0;
}

static void begin_pass(int64_t now)
{
        uint32_t missed = atomic_load_explicit(&common()->missed, memory_order_relaxed);

        next_look = now + LOOK_MS;
        repair_no_more();               /* nothing is under way */
        bool now_wanted = atomic_exchange_explicit(&wanted, false, memory_order_acquire);
        if (!now_wanted && missed == seen_missed && !again)
                return;
        if (again && !now_wanted)
                next_look = now + AGAIN_MS;
        seen_missed = missed;
        again = false;
        passing = true;
        cursor = 0;
}

/* The rate. */
static bool may_copy(int64_t now)
{
        int64_t most = (int64_t)opt.rebuild_rate * BURST_MS / 1000;

        if (!opt.rebuild_rate)
                return true;
        budget += (now - budget_at) * (int64_t)opt.rebuild_rate / 1000;
        budget_at = now;
        if (budget > most)
                budget = most > PAGE_SIZE ? most : PAGE_SIZE;
        return budget >= PAGE_SIZE;
}

/* The pass is over, or has come further. */
static void look_back(int64_t now)
{
        if (!passing && !wanted && !again && copied)
                say_whole(now);
}

bool repair_next(uint64_t *slot, frame_t *frame)
{
        unsigned i = 0;

        if (is_idle())
                return false;
        int64_t now = now_ms(), next;
        if (!passing && !atomic_load(&under_way) && (wanted || now >= next_look))
                begin_pass(now);
        while (i < REPAIR_FRAMES && copying[i].used)
                i++;
        if (!passing || i == REPAIR_FRAMES || !may_copy(now))
                return false;
        while ((next = find()) >= 0) {
                atomic_fetch_add(&under_way, 1);
                if (!atomic_load(&stopped) && hold(&copying[i], (uint64_t)next)) {
                        found = true;
                        budget -= PAGE_SIZE;
                        *slot = (uint64_t)next;
                        *frame = (frame_t)(CONTROL->nframes + bounce_pages(CONTROL->nframes) + i);
                        return true;
                }
                atomic_fetch_sub(&under_way, 1);
                again = true;
        }
        look_back(now);
        return false;
}

int repair_patience(void)
{
        return is_idle() ? -1 : passing ? 1 : IDLE_MS;
}
