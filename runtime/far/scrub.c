/*
 * Reading back each copy, judging it by its sum, making it right.  See scrub.h.
 */
#include <errno.h>
#include <stdatomic.h>
#include <guest_ram.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/held.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/scrub.h"
#include "far/walk.h"
#include "include/allocator.h"
#include "pager/pte.h"

#define SUSPECTS 64
#define AGAIN_MS 100                    /* from the first look to the second, at least */
#define FRAMES   4096                   /* of the cache, searched in one step: some 20 us */

struct suspect { uint64_t slot; uint32_t sum; int64_t since; };

static struct scrub {
        /* Stored with release by the thread that begins a scrub, once the next group is there, and
         * by the I/O side, which ends it, once the report is there.  The I/O side and the thread
         * that reports load it with acquire. */
        _Atomic uint32_t state;
        /* By any thread; relaxed, as it publishes nothing. */
        _Atomic bool stop_asked;

        /* By the thread that begins a scrub, while there is none; the I/O side reads `rate`. */
        uint64_t rate;                  /* bytes a second; 0: no limit */
        uint64_t pages;                 /* to look at, roughly */
        int64_t begun_at;               /* ms */
        uint64_t total_before[SCRUB_COUNTS];

        /* By the I/O side, for threads that report.  total: relaxed, as they are statistics.
         * losses: stored with release, once loss[losses - 1] is there. */
        _Atomic uint64_t total[SCRUB_COUNTS];
        struct scrub_loss loss[SCRUB_LOSSES];
        _Atomic unsigned losses;
        int64_t ended_at;               /* ms; see `state` */

        /* The rest belongs to the I/O side. */
        rate_t reads_until;             /* see rate_allows() */
        struct {
                bool begun;
                bool goes_on;           /* slots are left for a first look */
                uint64_t cursor;
                uint64_t slot;          /* the one at which it is */
                unsigned unread;        /* places of this slot that are still to be read, a set */
        } walk;
        /* First looks that are being read, by frame.  Frame 0 is that of the second look. */
        struct { bool used; uint64_t slot; } first[SCRUB_FRAMES];
        unsigned reading;               /* how many */
        /* A ring: those that wait for a second look. */
        struct suspect suspect[SUSPECTS];
        unsigned suspects, oldest;
        /* The second look at one suspect, whose slot is held as number HELD_SCRUB. */
        struct second_look {
                enum { NOTHING, READ, SEARCH, REPAIR } phase;
                struct suspect of;
                /* Sets of places: to be read, right, wrong, that did not answer. */
                unsigned waits, right, wrong, silent;
                bool twice;             /* the copy that is being read was wrong the first time */
                uint32_t frame;         /* of the cache, the next to look at */
        } second;
} scrub;

static char *units(void) { return (char *)TREE_WINDOW; }

static void count(unsigned what, unsigned n)
{
        atomic_fetch_add_explicit(&scrub.total[what], n, memory_order_relaxed);
}

uint64_t scrub_total(unsigned what)
{
        return atomic_load_explicit(&scrub.total[what], memory_order_relaxed);
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
        /* The copies of a page are read one after the other, so it may be a suspect already. */
        for (unsigned i = 0; i < scrub.suspects; i++)
                if (scrub.suspect[(scrub.oldest + i) % SUSPECTS].slot == slot)
                        return;
        scrub.suspect[(scrub.oldest + scrub.suspects++) % SUSPECTS] =
                (struct suspect){ .slot = slot, .sum = sum_of(slot), .since = now_ms() };
}

/* Each first look that is being read may make one more suspect. */
static bool has_room(void) { return scrub.suspects + scrub.reading < SUSPECTS; }

/* Of a slot that a walk has found: has it a page, and does this process hold it?  A page that was
 * written has a sum of 0 once in four milliards. */
static bool is_page(uint64_t slot)
{
        uint16_t w = atomic_load_explicit(slot_word(units(), slot), memory_order_relaxed);

        return sum_of(slot) && (!(w & SLOT_SHARED) || held_shares(slot));
}

/* Moves the walk on to the next slot that has copies to read.  False: there is none within a
 * step. */
static bool next_slot(void)
{
        unsigned look = WALK_SCAN;
        uint64_t slot;

        while ((slot = walk_next(&scrub.walk.cursor, &look)) != WALK_LATER) {
                if (slot == WALK_END) {
                        scrub.walk.goes_on = false;
                        return false;
                }
                if (!is_page(slot))
                        continue;
                count(SCRUB_PAGES, 1);
                scrub.walk.slot = slot;
                scrub.walk.unread = live_copies(slot);
                if (scrub.walk.unread)
                        return true;
                suspect(slot);          /* all its copies were on lost nodes */
                if (!has_room())
                        break;
        }
        return false;
}

static int free_frame(void)
{
        for (int i = 1; i < SCRUB_FRAMES; i++)
                if (!scrub.first[i].used)
                        return i;
        return -1;
}

/* True: there was something to do. */
static bool look_once(int64_t now)
{
        int i = free_frame();

        if (!scrub.walk.goes_on || i < 0 || !has_room() ||
            !rate_allows(&scrub.reads_until, scrub.rate, now, 1))
                return false;
        if (!scrub.walk.unread && !next_slot())
                return false;
        uint64_t slot = scrub.walk.slot;
        unsigned k = (unsigned)__builtin_ctz(scrub.walk.unread);
        if (!answers(slot, k)) {
                scrub.walk.unread &= ~(1u << k);
                count(SCRUB_UNREAD, 1);
                return true;
        }
        if (!held_begin())
                return false;
        scrub.walk.unread &= ~(1u << k);
        scrub.first[i].used = true;
        scrub.first[i].slot = slot;
        scrub.reading++;
        rate_take(&scrub.reads_until, scrub.rate, now);
        request_check(slot, k, frame_number((unsigned)i), check_over);
        return true;
}

/* ---- the second look ---- */

static void end_second(void)
{
        uint64_t slot = scrub.second.of.slot;

        scrub.second.phase = NOTHING;
        held_let_go(HELD_SCRUB);
        request_go_on(slot);
}

static void lose(uint64_t slot, unsigned k)
{
        const struct far_place *p = &far_slab(slot_slab(slot))->place[k];
        unsigned n = atomic_load_explicit(&scrub.losses, memory_order_relaxed);
        uint64_t page = p->first + slot_page(slot);

        count(SCRUB_LOST, 1);
        if (n == SCRUB_LOSSES)
                return;
        scrub.loss[n] = (struct scrub_loss){ .slot = slot, .page = page, .node = p->node->index };
        atomic_store_explicit(&scrub.losses, n + 1, memory_order_release);
        warnx_("%s: page %llu of the node (slot %#llx) is not as it was written, and no other copy "
               "is right: once it is read, the program gets SIGBUS; see the node's memory and the "
               "network", p->node->option->origin, (unsigned long long)page,
               (unsigned long long)slot);
}

/* No copy is right, and none is on a node that may answer again.  The bits of the copies stay as
 * they are, so an access to the page finds it wrong too. */
static void judge_lost(uint64_t slot)
{
        const struct far_slab *s = far_slab(slot_slab(slot));
        const unsigned wrong = scrub.second.wrong;

        for (unsigned k = 0; wrong >> k; k++)
                if (wrong >> k & 1)
                        count_one(&s->place[k].node->damaged);
        lose(slot, wrong ? (unsigned)__builtin_ctz(wrong) : 0);
        end_second();
}

static void judge(void)
{
        struct second_look *l = &scrub.second;
        uint64_t slot = l->of.slot;
        bool owned;

        if (!held_still(HELD_SCRUB, &owned) || sum_of(slot) != l->of.sum) {
                end_second();
                return;
        }
        count(SCRUB_BAD, (unsigned)__builtin_popcount(l->wrong));
        if (!l->right && !l->silent) {
                judge_lost(slot);
        } else if (!l->right) {         /* the page may be right on a node that is silent */
                end_second();
        } else {
                request_spoiled(slot, l->wrong);
                if (held_may_write(HELD_SCRUB)) {
                        l->phase = REPAIR;
                        request_repair(slot, frame_number(0));
                        return;
                }
                repair_missed();        /* for the repairer, or for this process later */
                repair_wanted();
                end_second();
        }
}

static void repaired(unsigned places)
{
        scrub.second.phase = NOTHING;
        count(SCRUB_REPAIRED, (unsigned)__builtin_popcount(places & scrub.second.wrong));
        if (scrub.second.wrong & ~places) {
                repair_missed();
                repair_wanted();
        }
}

/* Is the page in this frame, whose slot is held, certainly as it was written? */
static bool is_clean(const struct frame *f, uint32_t n)
{
        uint64_t w = atomic_load(&f->word);
        pte_slot_t *pte = atomic_load(&f->pte);
        pte_t p = pte ? atomic_load(pte) : 0;

        return (w & FRAME_RESIDENT) && !(w & (FRAME_HELD_MASK | FRAME_DIRTY)) &&
               pte_kind(p) == PTE_PRESENT && pte_num(p) == frame_pfn0() + n && !(p & PTE_D) &&
               atomic_load(&f->word) == w;
}

/* A free frame has the number of another frame where its slot was (pager.h).  Acquire: the vCPU
 * that gives a frame a slot has made the frame resident before. */
static bool has_slot(const struct frame *f, uint64_t slot)
{
        return __atomic_load_n(&f->slot, __ATOMIC_ACQUIRE) == slot &&
               (atomic_load(&f->word) & FRAME_RESIDENT);
}

/* One step of the search for a frame that has the slot. */
static void search(void)
{
        const struct frame *frames = (const struct frame *)CONTROL->frame_table;
        uint64_t slot = scrub.second.of.slot;
        uint32_t end = scrub.second.frame + FRAMES;

        if (end > CONTROL->nframes)
                end = (uint32_t)CONTROL->nframes;
        for (uint32_t n = scrub.second.frame; n < end; n++)
                if (has_slot(&frames[n], slot)) {
                        if (is_clean(&frames[n], n))
                                judge();
                        else
                                end_second();
                        return;
                }
        scrub.second.frame = end;
        if (end == CONTROL->nframes)
                judge();
}

/* Reads the next copy; once all were read, searches the cache or judges. */
static void look_on(void)
{
        struct second_look *l = &scrub.second;
        uint64_t slot = l->of.slot;
        bool owned;

        while (l->waits && !answers(slot, (unsigned)__builtin_ctz(l->waits))) {
                unsigned silent = l->waits & -l->waits;
                l->waits &= ~silent;
                l->silent |= silent;
        }
        if (l->waits) {
                rate_take(&scrub.reads_until, scrub.rate, now_ms());
                request_check(slot, (unsigned)__builtin_ctz(l->waits), frame_number(0),
                              check_over);
        } else if (!l->wrong && (l->right || l->silent)) {
                end_second();
        } else if (!held_still(HELD_SCRUB, &owned)) {
                end_second();
        } else if (owned) {
                l->phase = SEARCH;
                l->frame = 0;
        } else {        /* a shared slot is written by no process, and all its writes are over */
                judge();
        }
}

/* True: there was something to do. */
static bool begin_second(int64_t now)
{
        if (!scrub.suspects)
                return false;
        struct suspect s = scrub.suspect[scrub.oldest];
        if (now - s.since < AGAIN_MS || !rate_allows(&scrub.reads_until, scrub.rate, now, 1))
                return false;
        int err = held_take(HELD_SCRUB, s.slot, false, repaired);
        if (err == -EAGAIN)
                return false;
        scrub.oldest = (scrub.oldest + 1) % SUSPECTS;
        scrub.suspects--;
        if (err)
                return true;
        scrub.second = (struct second_look){ .phase = READ, .of = s,
                                             .waits = live_copies(s.slot) };
        if (request_written(s.slot) || sum_of(s.slot) != s.sum)
                end_second();
        else
                look_on();
        return true;
}

static void second_over(enum check found)
{
        struct second_look *l = &scrub.second;
        unsigned one = l->waits & -l->waits;

        if (found == CHECK_WRONG && !l->twice) {
                l->twice = true;
        } else {
                l->twice = false;
                l->waits &= ~one;
                l->right |= found == CHECK_RIGHT ? one : 0;
                l->wrong |= found == CHECK_WRONG ? one : 0;
                l->silent |= found == CHECK_SILENT ? one : 0;
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
        scrub.first[i].used = false;
        scrub.reading--;
        held_end();
        count(found == CHECK_SILENT ? SCRUB_UNREAD : SCRUB_COPIES, 1);
        if (found == CHECK_WRONG)
                suspect(scrub.first[i].slot);
}

/* ---- a scrub ---- */

bool scrub_runs(void)
{
        return atomic_load_explicit(&scrub.state, memory_order_acquire) == SCRUB_RUNS;
}

static void end(enum scrub_state how)
{
        scrub.walk.begun = false;
        scrub.walk.unread = 0;
        scrub.suspects = 0;
        scrub.ended_at = now_ms();
        atomic_store_explicit(&scrub.state, how, memory_order_release);
}

unsigned scrub_step(void)
{
        unsigned work = 0;

        if (!scrub_runs())
                return 0;
        bool stops = atomic_load_explicit(&scrub.stop_asked, memory_order_relaxed);
        if (!scrub.walk.begun) {
                scrub.walk.begun = scrub.walk.goes_on = true;
                scrub.walk.cursor = 0;
        }
        int64_t now = now_ms();
        while (!stops && work < SCRUB_FRAMES && look_once(now))
                work++;
        if (scrub.second.phase == SEARCH) {
                search();
                work++;
        } else if (scrub.second.phase == NOTHING && !stops && begin_second(now)) {
                work++;
        }
        bool idle = !scrub.reading && scrub.second.phase == NOTHING;
        if (idle && stops)
                end(SCRUB_STOPPED);
        else if (idle && !scrub.walk.goes_on && !scrub.walk.unread && !scrub.suspects)
                end(SCRUB_OVER);
        return work;
}

int scrub_patience(void) { return scrub_runs() ? 1 : -1; }

void scrub_begin(uint64_t bytes_a_second, uint64_t pages, bool any)
{
        scrub.rate = bytes_a_second;
        scrub.pages = pages;
        scrub.begun_at = scrub.ended_at = now_ms();
        for (unsigned i = 0; i < SCRUB_COUNTS; i++)
                scrub.total_before[i] = scrub_total(i);
        atomic_store(&scrub.losses, 0);
        atomic_store(&scrub.stop_asked, false);
        atomic_store_explicit(&scrub.state, any ? SCRUB_RUNS : SCRUB_OVER, memory_order_release);
}

void scrub_to_stop(void)
{
        atomic_store_explicit(&scrub.stop_asked, true, memory_order_relaxed);
}

void scrub_report(struct scrub_report *r)
{
        /* `state` comes first, so the rest is of that time or later.  Acquire: of `losses`, for
         * loss[]. */
        *r = (struct scrub_report){ .state = atomic_load_explicit(&scrub.state,
                                                                  memory_order_acquire) };
        if (r->state == SCRUB_NONE)
                return;
        r->pages = scrub.pages;
        r->rate = scrub.rate;
        for (unsigned i = 0; i < SCRUB_COUNTS; i++)
                r->count[i] = scrub_total(i) - scrub.total_before[i];
        r->ms = (r->state == SCRUB_RUNS ? now_ms() : scrub.ended_at) - scrub.begun_at;
        r->losses = atomic_load_explicit(&scrub.losses, memory_order_acquire);
        for (unsigned i = 0; i < r->losses; i++)
                r->loss[i] = scrub.loss[i];
}

void scrub_forked(void)
{
        atomic_store(&scrub.state, SCRUB_NONE);
        atomic_store(&scrub.losses, 0);
        scrub.walk.begun = false;
        scrub.walk.unread = 0;
        scrub.reading = scrub.suspects = 0;
        scrub.second.phase = NOTHING;
        for (unsigned i = 0; i < SCRUB_FRAMES; i++)
                scrub.first[i].used = false;
}
