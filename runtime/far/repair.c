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
#include "far/nodes.h"
#include "far/repair.h"
#include "far/tree.h"
#include "far/walk.h"
#include "far/whole.h"
#include "include/tree.h"
#include "vm/vm.h"

#define IDLE_MS  500                    /* between two steps without a pass */
#define LOOK_MS  5000                   /* between two passes because copies were missed */
#define AGAIN_MS 1000                   /* before what could not be copied is tried again */
#define NEED_MS  200                    /* the same, if a node is to be left */
#define RUN      (REPAIR_FRAMES / 2)    /* copies that are begun at once */

/* Slots that are held: for copies under way, and one for scrub.c.  Written by the I/O side with the
 * lock, which it reads without; `released` is for who has the lock.  writes: the page is written
 * where it is wanting, or will be. */
#define CHECKED REPAIR_FRAMES
static struct copy { uint64_t slot; bool used, owned, released, writes; } copying[CHECKED + 1];
#define COPYING (sizeof(copying) / sizeof(copying[0]))
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* How many are under way, with scrub.c's reads; full barriers: repair_stop() stores stopped, then
 * reads it; repair_begin() the other way round. */
static _Atomic unsigned under_way;
static _Atomic bool stopped;
/* A pass is to begin: said also by the thread that adds places (rebuild.c).  Release and acquire:
 * the pass sees the new place. */
static _Atomic bool wanted;
static _Atomic uint64_t pages;          /* a statistic */
static struct tree *tree;

/* The rest belongs to the I/O side. */
static uint64_t cursor;                 /* the next slot of this pass */
static unsigned next_copy;              /* of the run that is begun; a multiple of RUN: none is */
static bool passing;
/* This pass has copied pages, so another one looks whether that was all; pages could not be copied
 * now. */
static bool found, again;
/* Nodes that were to be left when this pass began; it has found pages that only they have, and that
 * were not copied; the last pass has not, and none was written since. */
static uint64_t seen_leaving;
static bool needy, is_free;
static bool ended;                      /* a pass, but not all of its copies */
static bool repairer;                   /* this process may be tree_common.repairer */
static uint64_t copied;                 /* pages, since all copies were there */
static int64_t since;                   /* when the first of them was copied, ms */
static uint32_t seen_missed;
static int64_t next_look;               /* ms */
static rate_t moves_until;
static void (*checked_copied)(unsigned places);         /* of repair_hold() */

static struct copies copies(void)
{
        return (struct copies){ .units = (char *)TREE_WINDOW, .self = CONTROL->tree_number };
}

/* Only nodes that are to be left have the page. */
static bool needs_leaving(uint64_t slot)
{
        const struct copies c = copies();

        return copies_need_leaving(&c, far_slab(slot_slab(slot)), slot);
}

static struct tree_common *common(void) { return (struct tree_common *)TREE_WINDOW; }

/* Acquire: their slabs have bits. */
static uint64_t leaving(void)
{
        return atomic_load_explicit(&common()->leaving, memory_order_acquire);
}

static bool is_idle(void)
{
        return CONTROL->nslabs == 0 || (opt.replicas < 2 && !leaving()) ||
               atomic_load_explicit(&stopped, memory_order_relaxed);
}

void repair_in(struct tree *t) { tree = t; }

void repair_wanted(void) { atomic_store_explicit(&wanted, true, memory_order_release); }

void repair_missed(void)
{
        /* Relaxed: a hint, also for other processes, which hold some of the slots too. */
        atomic_fetch_add_explicit(&common()->missed, 1, memory_order_relaxed);
}

void repair_needed(void)
{
        needy = true;
        is_free = false;
        repair_wanted();
}

bool repair_is_free(void)
{
        return CONTROL->nslabs == 0 || (is_free && leaving() == seen_leaving);
}

uint64_t repair_pages(void) { return atomic_load_explicit(&pages, memory_order_relaxed); }

bool repair_holds(uint64_t slot)
{
        for (unsigned i = 0; i < COPYING; i++)
                if (copying[i].used && copying[i].slot == slot)
                        return true;
        return false;
}

/* Full barriers: what the process before it made good, and gave up, is seen. */
static bool is_repairer(void)
{
        uint32_t none = 0, self = CONTROL->tree_number + 1;

        bool is = atomic_compare_exchange_strong(&common()->repairer, &none, self) || none == self;

        repairer |= is;
        return is;
}

static void repair_no_more(void)
{
        uint32_t self = CONTROL->tree_number + 1;

        /* Nodes that are to be left get no copies. */
        if (!repairer ||
            (atomic_load(&common()->process[CONTROL->tree_number].unfenced) & ~leaving()))
                return;
        atomic_compare_exchange_strong(&common()->repairer, &self, 0);
        repairer = false;
}

bool repair_begin(void)
{
        atomic_fetch_add(&under_way, 1);
        if (!atomic_load(&stopped))
                return true;
        repair_end();
        return false;
}

void repair_end(void) { atomic_fetch_sub(&under_way, 1); }

/* Nobody else writes the slot from here on, until let_go(): nor does this process, unless `writes`.
 * False: it is not this process's. */
static bool hold(struct copy *c, uint64_t slot, bool writes)
{
        slot_word_t *word = slot_word((char *)TREE_WINDOW, slot);
        uint16_t mine = (uint16_t)(SLOT_OWNED | CONTROL->tree_number);
        bool held;

        pthread_mutex_lock(&lock);
        /* Acquire: a page that this process was given is there. */
        bool owned = atomic_compare_exchange_strong(word, &mine, (uint16_t)(mine | SLOT_DUE));
        held = owned || (tree_shares(tree, slot) && (!writes || is_repairer()));
        /* DUE for good: it is retired when it is freed, so nobody takes it. */
        if (!held && !writes)
                held = mine == (SLOT_OWNED | SLOT_DUE | CONTROL->tree_number);
        if (held)
                *c = (struct copy){ .slot = slot, .used = true, .owned = owned, .writes = writes };
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
        repair_end();
}

/* ---- for scrub.c ---- */

bool repair_shares(uint64_t slot) { return tree_shares(tree, slot); }

int repair_hold(uint64_t slot, void (*copied_to)(unsigned places))
{
        checked_copied = copied_to;
        if (repair_holds(slot) || !repair_begin())
                return -EAGAIN;
        if (hold(&copying[CHECKED], slot, false))
                return 0;
        repair_end();
        return -ESTALE;
}

bool repair_still_holds(bool *owned)
{
        const struct copy *c = &copying[CHECKED];
        uint16_t w = atomic_load(slot_word((char *)TREE_WINDOW, c->slot));

        *owned = (w & ~SLOT_DUE) == (SLOT_OWNED | CONTROL->tree_number);
        return *owned || repair_shares(c->slot);
}

bool repair_may_write(void)
{
        struct copy *c = &copying[CHECKED];

        return c->writes = c->owned || (repair_shares(c->slot) && is_repairer());
}

void repair_let_go(void) { let_go(&copying[CHECKED]); }

/* Copies that may still be sent, so that another process may not be the repairer yet. */
static bool any_writes(void)
{
        for (unsigned i = 0; i < COPYING; i++)
                if (copying[i].used && copying[i].writes)
                        return true;
        return false;
}

/* ---- copies that are over, and slots that are released ---- */

/* False: it was scrub.c's, which is told. */
static bool end_copy(uint64_t slot, unsigned places)
{
        unsigned i = 0;

        while (i < COPYING && !(copying[i].used && copying[i].slot == slot))
                i++;
        if (i < COPYING)
                let_go(&copying[i]);
        if (i == CHECKED)
                checked_copied(places);
        return i != CHECKED;
}

static void not_now(uint64_t slot)
{
        again = true;
        needy |= needs_leaving(slot);
}

void repair_put_off(uint64_t slot)
{
        if (end_copy(slot, 0))
                again = true;
}

void repair_done(uint64_t slot, unsigned places)
{
        if (!end_copy(slot, places))
                return;
        if (!places) {
                not_now(slot);
                return;
        }
        found = true;
        atomic_fetch_add_explicit(&pages, 1, memory_order_relaxed);
        whole_copied();
        if (!copied++)
                since = now_ms();
}

void repair_unfit(uint64_t slot)
{
        const struct copies c = copies();

        copies_unfit(&c, slot);
        if (end_copy(slot, 0))
                needy |= needs_leaving(slot);
}

static bool defers(uint64_t slot)
{
        for (unsigned i = 0; i < COPYING; i++)
                if (copying[i].used && !copying[i].owned && copying[i].slot == slot)
                        return copying[i].released = true;
        return false;
}

int repair_release(const uint64_t *slots, size_t n)
{
        int err = 0;

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
        for (unsigned i = 0; i < COPYING; i++)
                copying[i].used = false;
        pthread_mutex_init(&lock, NULL);
        atomic_store(&under_way, 0);
        atomic_store(&stopped, false);
        atomic_store(&wanted, false);
        passing = ended = found = again = is_free = repairer = false;
        next_copy = 0;
        whole_anew();
        seen_leaving = 0;
        cursor = 0;
}

/* ---- which slot next ---- */

/* *due: no copy may be made of it. */
static bool is_held(uint64_t slot, bool *due)
{
        uint16_t w = atomic_load_explicit(slot_word((char *)TREE_WINDOW, slot),
                                          memory_order_relaxed);

        *due = w & SLOT_DUE && !(w & SLOT_SHARED);
        return (w & ~SLOT_DUE) == (SLOT_OWNED | CONTROL->tree_number) ||
               (w & SLOT_SHARED && tree_shares(tree, slot));
}

static void pass_over(void)
{
        passing = false;
        ended = true;
}

/* A pass has found nothing to copy. */
static void say_whole(int64_t now)
{
        if (opt.replicas > 1)
                warnx_("far memory: all nodes that answer have their copies again: %llu pages in "
                       "%.1f s", (unsigned long long)copied, (double)(now - since) / 1000);
        copied = 0;
}

/* And all its copies are. */
static void judge_pass(int64_t now)
{
        ended = false;
        again |= needy;
        is_free = !needy;

        int64_t next = now + (needy ? NEED_MS : again ? AGAIN_MS : LOOK_MS);
        if (next_look > next)
                next_look = next;
        if (found)
                repair_wanted();        /* to see whether that was all */
        else if (copied && !again && !atomic_load_explicit(&wanted, memory_order_relaxed))
                say_whole(now);
}

/* All its pages are at one place. */
static bool is_single(const struct copies *c, const struct far_slab *s)
{
        if (atomic_load_explicit(&s->places, memory_order_acquire) > 1)
                return false;
        needy |= s->place[0].node->driver->kind == SLAB_REMOTE && copies_leave(c, s->place[0].node);
        return true;
}

/* From the cursor on, a slot that may be copied; -1: not within so many, or the pass is over. */
static int64_t find(void)
{
        const struct copies c = copies();

        for (unsigned left = WALK_SCAN; passing; ) {
                uint64_t slot = walk_next(&cursor, &left);
                bool due;
                if (slot == WALK_LATER)
                        break;
                if (slot == WALK_END) {
                        pass_over();
                        break;
                }
                const struct far_slab *s = far_slab(slot_slab(slot));
                if (is_single(&c, s)) {
                        cursor = (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
                        continue;
                }
                if (!is_held(slot, &due))
                        continue;
                bool needs = seen_leaving && copies_need_leaving(&c, s, slot);
                if (copies_wanting(&c, s, slot)) {
                        if (!due && copies_to_repair(&c, s, slot))
                                return (int64_t)slot;
                        again |= !due || repair_holds(slot);    /* scrub.c does */
                }
                needy |= needs;
        }
        return -1;
}

static void begin_pass(int64_t now)
{
        uint32_t missed = atomic_load_explicit(&common()->missed, memory_order_relaxed);
        const uint64_t to_leave = leaving();    /* once: it may change meanwhile */

        next_look = now + LOOK_MS;
        bool now_wanted = atomic_exchange_explicit(&wanted, false, memory_order_acquire);
        if (!now_wanted && missed == seen_missed && !again && to_leave == seen_leaving)
                return;
        seen_missed = missed;
        is_free &= seen_leaving == to_leave;
        seen_leaving = to_leave;
        found = again = needy = false;
        passing = true;
        whole_anew();                   /* after it: this process may be the last one */
        cursor = 0;
}

static bool is_over(unsigned half)
{
        for (unsigned i = half; i < half + RUN; i++)
                if (copying[i].used)
                        return false;
        return true;
}

/* The tree's.  But a memnode that is to be left waits for a limited time only: until this process
 * has moved its pages from there, it does so at a rate of its own. */
static rate_t *rate(void)
{
        return seen_leaving && !is_free ? &moves_until : &common()->repairs_until;
}

/* Pages are copied in runs, one half of the frames after the other: a run is begun when the one
 * before in that half is over.  Neighbouring slots, whose frames are neighbours too, then go out as
 * one command, and what wakes a thread here or at a node wakes it for all of them. */
static bool may_begin(int64_t now)
{
        bool first = next_copy % RUN == 0;

        if (first)
                next_copy = is_over(0) ? 0 : RUN;
        return (!first || is_over(next_copy)) &&
               rate_allows(rate(), opt.rebuild_rate, now, first ? RUN : 1);
}

/* The next slot is held by copying[next_copy]; false: none is found now. */
static bool hold_next(uint64_t *slot)
{
        for (int64_t next; (next = find()) >= 0; not_now(*slot)) {
                *slot = (uint64_t)next;
                if (!repair_begin())
                        continue;
                if (!repair_holds(*slot) && hold(&copying[next_copy], *slot, true))
                        return true;
                repair_end();
        }
        return false;
}

bool repair_next(uint64_t *slot, frame_t *frame)
{
        if (is_idle())
                return false;
        int64_t now = now_ms();
        if (!passing && !any_writes()) {
                repair_no_more();
                if (ended)
                        judge_pass(now);
                if (wanted || now >= next_look || leaving() != seen_leaving)
                        begin_pass(now);
        }
        if (!passing)
                whole_look(now);
        if (!passing || !may_begin(now)) {
                next_copy = 0;
                return false;
        }
        if (!hold_next(slot)) {
                next_copy = 0;
                return false;
        }
        *frame = (frame_t)(CONTROL->nframes + bounce_pages(CONTROL->nframes) + next_copy++);
        rate_take(rate(), opt.rebuild_rate, now);
        return true;
}

int repair_patience(void)
{
        return is_idle() ? -1 : passing || ended || whole_goes_on() ? 1 : needy ? NEED_MS : IDLE_MS;
}
