/*
 * A pass over the slots of this process that lack copies, and each copy made.  See repair.h.
 */
#include <stdatomic.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/held.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/walk.h"
#include "far/whole.h"
#include "include/allocator.h"

#define IDLE_MS  500                    /* between two steps while there is no pass */
#define LOOK_MS  5000                   /* between two passes, for copies that nodes missed */
#define AGAIN_MS 1000                   /* before a page that could not be copied is tried again */
#define NEED_MS  200                    /* as AGAIN_MS, if only draining nodes have a page */
#define RUN      (REPAIR_FRAMES / 2)    /* copies that are begun at once */

static struct repair {
        /* A pass is to begin.  Any thread stores it with release, also the thread that adds places
         * (rebuild.c); the I/O side takes it with acquire, so the pass sees the new place. */
        _Atomic bool wanted;
        /* Pages that this process copied.  By the I/O side; relaxed, as it is a statistic. */
        _Atomic uint64_t pages;

        /* The rest belongs to the I/O side. */
        struct pass {
                bool runs;              /* slots are left to look at */
                bool ending;            /* none are, but not all of its copies are over */
                uint64_t cursor;        /* the next slot */
                uint64_t draining;      /* nodes that were draining when it began, a set */
                bool copied;            /* a page; so another pass looks whether that was all */
                bool put_off;           /* a page that lacks a copy, and cannot be copied now */
        } pass;
        int64_t next_pass;              /* ms: the latest time for it */
        uint32_t missed;                /* tree_common.missed when the last pass began */
        /* A page that only draining nodes have was met since the last pass began, or was written;
         * and a whole pass has met none, and none was written since. */
        bool needed, drained;
        unsigned next_frame;            /* of the run that is begun; a multiple of RUN: none is */
        uint64_t copied;                /* pages, since all copies were there */
        int64_t copied_since;           /* ms: when the first of them was copied */
        rate_t drain_until;             /* see rate() */
} repair;

/* Nodes that are draining, or were drained: a set.  Acquire: their slabs have bits. */
static uint64_t draining(void)
{
        return atomic_load_explicit(&TREE_COMMON->draining, memory_order_acquire);
}

/* Only draining nodes have the page. */
static bool is_needed(uint64_t slot)
{
        const struct copies c = copies();

        return copies_only_draining(&c, far_slab(slot_slab(slot)), slot);
}

static bool is_idle(void)
{
        return CONTROL->nslabs == 0 || (opt.replicas < 2 && !draining()) || held_is_stopped();
}

void repair_wanted(void) { atomic_store_explicit(&repair.wanted, true, memory_order_release); }

void repair_missed(void)
{
        /* Relaxed: a hint, also for other processes, which hold some of the slots too. */
        atomic_fetch_add_explicit(&TREE_COMMON->missed, 1, memory_order_relaxed);
}

void repair_needed(void)
{
        repair.needed = true;
        repair.drained = false;
        repair_wanted();
}

bool repair_has_drained(void)
{
        return CONTROL->nslabs == 0 || (repair.drained && draining() == repair.pass.draining);
}

uint64_t repair_pages(void) { return atomic_load_explicit(&repair.pages, memory_order_relaxed); }

void repair_forked(void)
{
        held_forked();
        atomic_store(&repair.wanted, false);
        repair.pass = (struct pass){ 0 };
        repair.drained = false;
        repair.next_frame = 0;
        whole_restart();
}

/* ---- copies that are over ---- */

static void try_later(uint64_t slot)
{
        repair.pass.put_off = true;
        repair.needed |= is_needed(slot);
}

void repair_put_off(uint64_t slot)
{
        if (held_over(slot, 0))
                repair.pass.put_off = true;
}

void repair_done(uint64_t slot, unsigned places)
{
        if (!held_over(slot, places))
                return;
        if (!places) {
                try_later(slot);
                return;
        }
        repair.pass.copied = true;
        atomic_fetch_add_explicit(&repair.pages, 1, memory_order_relaxed);
        whole_copied();
        if (!repair.copied++)
                repair.copied_since = now_ms();
}

void repair_unfit(uint64_t slot)
{
        const struct copies c = copies();

        copies_unfit(&c, slot);
        if (held_over(slot, 0))
                repair.needed |= is_needed(slot);
}

/* ---- passes ---- */

static void begin_pass(int64_t now)
{
        uint32_t missed = atomic_load_explicit(&TREE_COMMON->missed, memory_order_relaxed);
        const uint64_t drain = draining();      /* once: it may change meanwhile */
        bool wanted = atomic_exchange_explicit(&repair.wanted, false, memory_order_acquire);

        repair.next_pass = now + LOOK_MS;
        if (!wanted && missed == repair.missed && !repair.pass.put_off &&
            drain == repair.pass.draining)
                return;
        repair.missed = missed;
        repair.drained &= repair.pass.draining == drain;
        repair.needed = false;
        repair.pass = (struct pass){ .runs = true, .draining = drain };
        whole_restart();                   /* after the pass this process may be the last one */
}

static void end_pass(void)
{
        repair.pass.runs = false;
        repair.pass.ending = true;
}

/* A pass has found nothing to copy. */
static void say_whole(int64_t now)
{
        if (opt.replicas > 1)
                warnx_("far memory: all nodes that answer have their copies again: %llu pages in "
                       "%.1f s", (unsigned long long)repair.copied,
                       (double)(now - repair.copied_since) / 1000);
        repair.copied = 0;
}

/* A pass has ended, and all its copies are over. */
static void judge_pass(int64_t now)
{
        repair.pass.ending = false;
        repair.pass.put_off |= repair.needed;
        repair.drained = !repair.needed;

        int64_t next = now + (repair.needed         ? NEED_MS
                              : repair.pass.put_off ? AGAIN_MS
                                                    : LOOK_MS);
        if (repair.next_pass > next)
                repair.next_pass = next;
        if (repair.pass.copied)
                repair_wanted();        /* to see whether that was all */
        else if (repair.copied && !repair.pass.put_off &&
                 !atomic_load_explicit(&repair.wanted, memory_order_relaxed))
                say_whole(now);
}

/* ---- which slot next ---- */

/* All pages of the slab are at one place. */
static bool is_single(const struct copies *c, const struct far_slab *s)
{
        if (atomic_load_explicit(&s->places, memory_order_acquire) > 1)
                return false;
        repair.needed |= s->place[0].node->driver->kind == SLAB_REMOTE &&
                         copies_drain(c, s->place[0].node);
        return true;
}

/* Does this process own or share the slot?  *due: no copy of the page may be made. */
static bool is_own(uint64_t slot, bool *due)
{
        uint16_t w = atomic_load_explicit(slot_word((char *)TREE_WINDOW, slot),
                                          memory_order_relaxed);

        *due = w & SLOT_DUE && !(w & SLOT_SHARED);
        return (w & ~SLOT_DUE) == (SLOT_OWNED | CONTROL->tree_number) ||
               (w & SLOT_SHARED && held_shares(slot));
}

/* From the cursor on, a slot that may be copied; -1: the pass is over, or a step's worth of slots
 * has none. */
static int64_t find_slot(void)
{
        const struct copies c = copies();
        struct pass *p = &repair.pass;

        for (unsigned left = WALK_SCAN; p->runs; ) {
                uint64_t slot = walk_next(&p->cursor, &left);
                bool due;
                if (slot == WALK_LATER)
                        break;
                if (slot == WALK_END) {
                        end_pass();
                        break;
                }
                const struct far_slab *s = far_slab(slot_slab(slot));
                if (is_single(&c, s)) {
                        p->cursor = (uint64_t)(slot_slab(slot) + 1) << SLAB_SHIFT;
                        continue;
                }
                if (!is_own(slot, &due))
                        continue;
                bool needed = p->draining && copies_only_draining(&c, s, slot);
                if (copies_wanting(&c, s, slot)) {
                        if (!due && copies_to_repair(&c, s, slot))
                                return (int64_t)slot;
                        p->put_off |= !due || held_has(slot);   /* scrub.c holds it */
                }
                repair.needed |= needed;
        }
        return -1;
}

/* The slot is held by hold number next_frame.  False: no slot is found now. */
static bool hold_next(uint64_t *slot)
{
        for (int64_t next; (next = find_slot()) >= 0; try_later(*slot)) {
                *slot = (uint64_t)next;
                if (held_take(repair.next_frame, *slot, true, NULL) == 0)
                        return true;
        }
        return false;
}

/* That of the tree.  But a draining memnode waits for a limited time only, so this process moves
 * its pages from there at a rate of its own. */
static rate_t *rate(void)
{
        return repair.pass.draining && !repair.drained ? &repair.drain_until
                                                       : &TREE_COMMON->repairs_until;
}

/* Is no copy of the run under way any more, whose first frame this is? */
static bool is_over(unsigned first)
{
        for (unsigned i = first; i < first + RUN; i++)
                if (held_is_used(i))
                        return false;
        return true;
}

/* Pages are copied in runs, one half of the frames after the other: a run is begun when the
 * previous run in that half is over.  Neighbouring slots, whose frames are neighbours too, then go
 * out as one command, and the wake-up of a thread here or at a node serves all of them. */
static bool may_begin(int64_t now)
{
        bool first = repair.next_frame % RUN == 0;

        if (first)
                repair.next_frame = is_over(0) ? 0 : RUN;
        return (!first || is_over(repair.next_frame)) &&
               rate_allows(rate(), opt.rebuild_rate, now, first ? RUN : 1);
}

static void between_passes(int64_t now)
{
        held_resign();
        if (repair.pass.ending)
                judge_pass(now);
        if (repair.wanted || now >= repair.next_pass || draining() != repair.pass.draining)
                begin_pass(now);
}

bool repair_next(uint64_t *slot, frame_t *frame)
{
        if (is_idle())
                return false;
        int64_t now = now_ms();
        if (!repair.pass.runs && !held_writes())
                between_passes(now);
        if (!repair.pass.runs)
                whole_look(now);
        if (!repair.pass.runs || !may_begin(now) || !hold_next(slot)) {
                repair.next_frame = 0;
                return false;
        }
        *frame = (frame_t)(CONTROL->nframes + bounce_pages(CONTROL->nframes) +
                           repair.next_frame++);
        rate_take(rate(), opt.rebuild_rate, now);
        return true;
}

int repair_patience(void)
{
        if (is_idle())
                return -1;
        if (repair.pass.runs || repair.pass.ending || whole_goes_on())
                return 1;
        return repair.needed ? NEED_MS : IDLE_MS;
}
