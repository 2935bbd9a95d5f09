/*
 * See scrub.h.
 */
#include <errno.h>
#include <stdatomic.h>
#include <window.h>
#include "base/message.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/scrub.h"
#include "far/walk.h"
#include "include/tree.h"
#include "pager/pte.h"
#include "vm/vm.h"

#define SUSPECTS 64
#define AGAIN_MS 100                    /* from the first look to the second, at least */
#define FRAMES   4096                   /* looked at in one step: some 20 us */

/* Stored by who begins it, what it needs comes before (release), and by the I/O side, which ends
 * it. */
static _Atomic uint32_t state;
static _Atomic bool to_stop;
/* Written by who begins it, while there is none. */
static uint64_t most, to_do;
static int64_t begun_at;
static uint64_t begun[SCRUB_COUNTS];
/* Written by the I/O side.  Counts are statistics; loss[losses] is there before `losses` says so
 * (release), and ended_at before `state`. */
static _Atomic uint64_t total[SCRUB_COUNTS];
static struct scrub_loss loss[SCRUB_LOSSES];
static _Atomic unsigned losses;
static int64_t ended_at;

/* The rest belongs to the I/O side. */
static rate_t reads_until;
static bool goes, walking;              /* it has begun; slots are left for a first look */
static uint64_t cursor;
static uint64_t current;                /* the slot of which copies are left to read */
static unsigned left;                   /* at these places, a set */
/* First looks, by frame; 0 is the second look's. */
static struct { bool used; uint64_t slot; } first[SCRUB_FRAMES];
static unsigned reading;                /* of them */
static struct suspect { uint64_t slot; uint32_t sum; int64_t since; } suspects[SUSPECTS];
static unsigned nsuspects, oldest;
/* The second look.  Sets of places: to be read, right, wrong, that did not answer. */
static struct {
        enum { NOTHING, READ, SEARCH, REPAIR } phase;
        struct suspect of;
        unsigned waits, right, wrong, silent;
        bool again;                     /* the copy that is read was read before */
        uint32_t frame;                 /* of the cache, the next to look at */
} second;

static char *units(void) { return (char *)TREE_WINDOW; }

static struct copies copies(void)
{
        return (struct copies){ .units = units(), .self = CONTROL->tree_number };
}

static void count(unsigned what, unsigned n)
{
        atomic_fetch_add_explicit(&total[what], n, memory_order_relaxed);
}

uint64_t scrub_total(unsigned what)
{
        return atomic_load_explicit(&total[what], memory_order_relaxed);
}

static uint32_t sum_of(uint64_t slot)
{
        return atomic_load_explicit(slot_sum(units(), slot), memory_order_relaxed);
}

static frame_t frame_number(unsigned i)
{
        return (frame_t)(CONTROL->nframes + bounce_pages(CONTROL->nframes) + REPAIR_FRAMES + i);
}

/* The good copies that are not on a lost node. */
static unsigned live_copies(uint64_t slot)
{
        const struct far_slab *s = far_slab(slot_slab(slot));
        const struct copies c = copies();
        unsigned set = copies_good(&c, s, slot);

        for (unsigned k = 0; set >> k; k++)
                if (s->place[k].node->lost)
                        set &= ~(1u << k);
        return set;
}

static bool answers(uint64_t slot, unsigned k)
{
        return far_answers(far_slab(slot_slab(slot))->place[k].node);
}

static void check_over(frame_t frame, enum check found);

/* ---- the first look ---- */

static void suspect(uint64_t slot)
{
        /* the copies of a page are read one after the other */
        for (unsigned i = 0; i < nsuspects; i++)
                if (suspects[(oldest + i) % SUSPECTS].slot == slot)
                        return;
        suspects[(oldest + nsuspects++) % SUSPECTS] =
                (struct suspect){ .slot = slot, .sum = sum_of(slot), .since = now_ms() };
}

/* Of a slot that a walk has found: is there a page that this process holds?  A sum of 0 is that of
 * no page that was ever written, or of one in four milliards. */
static bool is_page(uint64_t slot)
{
        uint16_t w = atomic_load_explicit(slot_word(units(), slot), memory_order_relaxed);

        return sum_of(slot) && (!(w & SLOT_SHARED) || repair_shares(slot));
}

/* The next slot with copies to read: current, left.  False: none within a step. */
static bool next_slot(void)
{
        unsigned look = WALK_SCAN;
        uint64_t slot;

        while ((slot = walk_next(&cursor, &look)) != WALK_LATER) {
                if (slot == WALK_END) {
                        walking = false;
                        return false;
                }
                if (!is_page(slot))
                        continue;
                count(SCRUB_PAGES, 1);
                current = slot;
                left = live_copies(slot);
                if (left)
                        return true;
                suspect(slot);          /* all of them were on lost nodes */
                if (nsuspects + reading >= SUSPECTS)
                        break;
        }
        return false;
}

static int free_frame(void)
{
        for (int i = 1; i < SCRUB_FRAMES; i++)
                if (!first[i].used)
                        return i;
        return -1;
}

/* True: there was something to do. */
static bool look_once(int64_t now)
{
        int i = free_frame();

        /* room for what is found */
        if (!walking || i < 0 || nsuspects + reading >= SUSPECTS ||
            !rate_allows(&reads_until, most, now, 1))
                return false;
        if (!left && !next_slot())
                return false;
        unsigned k = (unsigned)__builtin_ctz(left);
        if (!answers(current, k)) {
                left &= ~(1u << k);
                count(SCRUB_UNREAD, 1);
                return true;
        }
        if (!repair_begin())
                return false;
        left &= ~(1u << k);
        first[i].used = true;
        first[i].slot = current;
        reading++;
        rate_take(&reads_until, most, now);
        request_check(current, k, frame_number((unsigned)i), check_over);
        return true;
}

/* ---- the second look ---- */

static void let_go(void)
{
        uint64_t slot = second.of.slot;

        second.phase = NOTHING;
        repair_let_go();
        request_go_on(slot);
}

static void lose(uint64_t slot, unsigned k)
{
        const struct far_place *p = &far_slab(slot_slab(slot))->place[k];
        unsigned n = atomic_load_explicit(&losses, memory_order_relaxed);
        uint64_t page = p->first + slot_page(slot);

        count(SCRUB_LOST, 1);
        if (n == SCRUB_LOSSES)
                return;
        loss[n] = (struct scrub_loss){ .slot = slot, .page = page, .node = p->node->index };
        atomic_store_explicit(&losses, n + 1, memory_order_release);
        warnx_("%s: page %llu of it (slot %#llx) is not as it was written, and no other copy is "
               "right: once it is read, the program gets SIGBUS; see the node's memory and the "
               "network", p->node->option->origin, (unsigned long long)page,
               (unsigned long long)slot);
}

/* No copy is right, and none is on a node that may answer again.  Bits stay as they are: so an
 * access finds the same. */
static void judge_lost(uint64_t slot)
{
        const struct far_slab *s = far_slab(slot_slab(slot));
        unsigned which = second.wrong ? second.wrong : 1;

        for (unsigned k = 0; second.wrong >> k; k++)
                if (second.wrong >> k & 1)
                        s->place[k].node->damaged++;
        lose(slot, (unsigned)__builtin_ctz(which));
        let_go();
}

static void judge(void)
{
        uint64_t slot = second.of.slot;
        bool owned;

        if (!repair_still_holds(&owned) || sum_of(slot) != second.of.sum) {
                let_go();
                return;
        }
        count(SCRUB_BAD, (unsigned)__builtin_popcount(second.wrong));
        if (!second.right && !second.silent) {
                judge_lost(slot);
        } else if (!second.right) {     /* it may be right where nobody answers */
                let_go();
        } else {
                request_spoiled(slot, second.wrong);
                if (repair_may_write()) {
                        second.phase = REPAIR;
                        request_repair(slot, frame_number(0));
                        return;
                }
                repair_missed();        /* the process that may write it, or this one later */
                repair_wanted();
                let_go();
        }
}

static void repaired(unsigned places)
{
        second.phase = NOTHING;
        count(SCRUB_REPAIRED, (unsigned)__builtin_popcount(places & second.wrong));
        if (second.wrong & ~places) {
                repair_missed();
                repair_wanted();
        }
}

/* Can the page in this frame, whose slot is held, not have changed since it was written? */
static bool is_clean(const struct frame *f, uint32_t n)
{
        uint64_t w = atomic_load(&f->word);
        pte_slot_t *pte = atomic_load(&f->pte);
        pte_t p = pte ? atomic_load(pte) : 0;

        return (w & FRAME_RESIDENT) && !(w & (FRAME_HELD_MASK | FRAME_DIRTY)) &&
               pte_kind(p) == PTE_PRESENT && pte_num(p) == frame_pfn0() + n && !(p & PTE_D) &&
               atomic_load(&f->word) == w;
}

/* A free frame has the number of another where its slot was (pager.h).  Acquire: who gives a frame
 * a slot has made it resident before. */
static bool has_slot(const struct frame *f, uint64_t slot)
{
        return __atomic_load_n(&f->slot, __ATOMIC_ACQUIRE) == slot &&
               (atomic_load(&f->word) & FRAME_RESIDENT);
}

/* Looks for a frame that has the slot. */
static void search(void)
{
        const struct frame *frames = (const struct frame *)CONTROL->frame_table;
        uint64_t slot = second.of.slot;
        uint32_t end = second.frame + FRAMES;

        if (end > CONTROL->nframes)
                end = (uint32_t)CONTROL->nframes;
        for (uint32_t n = second.frame; n < end; n++)
                if (has_slot(&frames[n], slot)) {
                        if (is_clean(&frames[n], n))
                                judge();
                        else
                                let_go();
                        return;
                }
        second.frame = end;
        if (end == CONTROL->nframes)
                judge();
}

/* Reads the next copy, or goes on when all were read. */
static void look_on(void)
{
        uint64_t slot = second.of.slot;
        bool owned;

        while (second.waits && !answers(slot, (unsigned)__builtin_ctz(second.waits))) {
                unsigned silent = second.waits & -second.waits;
                second.waits &= ~silent;
                second.silent |= silent;
        }
        if (second.waits) {
                rate_take(&reads_until, most, now_ms());
                request_check(slot, (unsigned)__builtin_ctz(second.waits), frame_number(0),
                              check_over);
        } else if (!second.wrong && (second.right || second.silent)) {
                let_go();
        } else if (!repair_still_holds(&owned)) {
                let_go();
        } else if (owned) {
                second.phase = SEARCH;
                second.frame = 0;
        } else {                        /* nobody writes it, and nobody did without an end */
                judge();
        }
}

/* True: there was something to do. */
static bool begin_again(int64_t now)
{
        if (!nsuspects)
                return false;
        struct suspect s = suspects[oldest];
        if (now - s.since < AGAIN_MS || !rate_allows(&reads_until, most, now, 1))
                return false;
        int err = repair_hold(s.slot, repaired);
        if (err == -EAGAIN)
                return false;
        oldest = (oldest + 1) % SUSPECTS;
        nsuspects--;
        if (err)
                return true;
        second = (typeof(second)){ .phase = READ, .of = s, .waits = live_copies(s.slot) };
        if (request_written(s.slot) || sum_of(s.slot) != s.sum)
                let_go();
        else
                look_on();
        return true;
}

static void second_over(enum check found)
{
        unsigned one = second.waits & -second.waits;

        if (found == CHECK_WRONG && !second.again) {
                second.again = true;
        } else {
                second.again = false;
                second.waits &= ~one;
                second.right |= found == CHECK_RIGHT ? one : 0;
                second.wrong |= found == CHECK_WRONG ? one : 0;
                second.silent |= found == CHECK_SILENT ? one : 0;
        }
        look_on();
}

static void check_over(frame_t frame, enum check found)
{
        unsigned i = frame - frame_number(0);

        if (i == 0) {
                second_over(found);
                return;
        }
        first[i].used = false;
        reading--;
        repair_end();
        count(found == CHECK_SILENT ? SCRUB_UNREAD : SCRUB_COPIES, 1);
        if (found == CHECK_WRONG)
                suspect(first[i].slot);
}

/* ---- the whole of it ---- */

bool scrub_runs(void)
{
        /* Acquire: what it was begun with. */
        return atomic_load_explicit(&state, memory_order_acquire) == SCRUB_RUNS;
}

static void end(enum scrub_state how)
{
        goes = false;
        nsuspects = left = 0;
        ended_at = now_ms();
        /* Release: what is reported. */
        atomic_store_explicit(&state, how, memory_order_release);
}

unsigned scrub_step(void)
{
        unsigned work = 0;

        if (!scrub_runs())
                return 0;
        bool stops = atomic_load_explicit(&to_stop, memory_order_relaxed);
        if (!goes) {
                goes = walking = true;
                cursor = 0;
        }
        int64_t now = now_ms();
        while (!stops && work < SCRUB_FRAMES && look_once(now))
                work++;
        if (second.phase == SEARCH) {
                search();
                work++;
        } else if (second.phase == NOTHING && !stops && begin_again(now)) {
                work++;
        }
        bool idle = !reading && second.phase == NOTHING;
        if (idle && stops)
                end(SCRUB_STOPPED);
        else if (idle && !walking && !left && !nsuspects)
                end(SCRUB_OVER);
        return work;
}

int scrub_patience(void) { return scrub_runs() ? 1 : -1; }

void scrub_begin(uint64_t bytes_a_second, uint64_t pages, bool any)
{
        most = bytes_a_second;
        to_do = pages;
        begun_at = ended_at = now_ms();
        for (unsigned i = 0; i < SCRUB_COUNTS; i++)
                begun[i] = scrub_total(i);
        atomic_store(&losses, 0);
        atomic_store(&to_stop, false);
        /* Release: see scrub_runs(). */
        atomic_store_explicit(&state, any ? SCRUB_RUNS : SCRUB_OVER, memory_order_release);
}

void scrub_to_stop(void) { atomic_store_explicit(&to_stop, true, memory_order_relaxed); }

void scrub_report(struct scrub_report *r)
{
        /* Acquire: `state` comes first, so the rest is of that time or later; and losses before
         * loss[]. */
        *r = (struct scrub_report){ .state = atomic_load_explicit(&state, memory_order_acquire) };
        if (r->state == SCRUB_NONE)
                return;
        r->pages = to_do;
        r->rate = most;
        for (unsigned i = 0; i < SCRUB_COUNTS; i++)
                r->count[i] = scrub_total(i) - begun[i];
        r->ms = (r->state == SCRUB_RUNS ? now_ms() : ended_at) - begun_at;
        r->losses = atomic_load_explicit(&losses, memory_order_acquire);
        for (unsigned i = 0; i < r->losses; i++)
                r->loss[i] = loss[i];
}

void scrub_forked(void)
{
        atomic_store(&state, SCRUB_NONE);
        atomic_store(&losses, 0);
        goes = false;
        reading = nsuspects = left = 0;
        second.phase = NOTHING;
        for (unsigned i = 0; i < SCRUB_FRAMES; i++)
                first[i].used = false;
}
