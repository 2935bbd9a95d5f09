/*
 * When scrub.c calls a copy wrong ([I] of scrub.h), what it then does, and when it must not: one
 * page with two copies, of which the first does not fit its sum.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "pager/frame.h"
#include "side_hooks.h"
#include "far/scrub.c"

#define SLOT    5u
#define SUM     77u
#define NFRAMES 9000u                   /* more than one step of the search looks at */

/* --- what is around it --- */

static struct frame *frames;
static pte_slot_t entry;                /* of the page, where a frame has it */
static struct far_node node[2];
static struct far_slab slab;
static bool given, shares, owns, may_write, being_written, goes_away;
/* The answer of a read of a copy: the first, and all later ones. */
static enum check first_says[2], then_says[2];
static unsigned reads[2], spoiled, repairs, missed;
static unsigned held;                   /* slots */
static int under_way;
static struct { frame_t frame; unsigned k; check_fn *over; } asked[4];
static unsigned nasked;
static void (*copied)(unsigned places);
static void (*meanwhile)(void);         /* once frames are searched */
static int64_t read_at[2];              /* ms: the first time, and the second */

void warnx_(const char *fmt, ...) { (void)fmt; }
uint64_t walk_next(uint64_t *at, unsigned *look)
{
        (void)at, (void)look;
        bool before = given;
        given = true;
        return before ? WALK_END : SLOT;
}
struct far_slab *far_slab(uint32_t i) { assert_int_equal(i, 0); return &slab; }
unsigned copies_good(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        (void)c, (void)s;
        assert_int_equal(slot, SLOT);
        return 3;
}

bool held_begin(void) { return ++under_way > 0; }
void held_end(void) { assert_true(under_way-- > 0); }
bool held_shares(uint64_t slot) { (void)slot; return shares; }
int held_take(unsigned i, uint64_t slot, bool writes, void (*copied_to)(unsigned places))
{
        assert_int_equal(i, HELD_SCRUB);
        assert_int_equal(slot, SLOT);
        assert_false(writes);
        copied = copied_to;
        held++;
        return 0;
}
bool held_still(unsigned i, bool *owned) { (void)i; *owned = owns; return !goes_away; }
bool held_may_write(unsigned i) { (void)i; return may_write; }
void held_let_go(unsigned i)
{
        assert_int_equal(i, HELD_SCRUB);
        assert_int_equal(held--, 1);
}
void repair_missed(void) { missed++; }
void repair_wanted(void) {}

void request_check(uint64_t slot, unsigned k, frame_t frame, check_fn *over)
{
        assert_int_equal(slot, SLOT);
        assert_in_range(nasked, 0, 3);
        asked[nasked++] = (typeof(asked[0])){ frame, k, over };
}
bool request_written(uint64_t slot) { (void)slot; return being_written; }
void request_spoiled(uint64_t slot, unsigned places) { (void)slot; spoiled |= places; }
void request_repair(uint64_t slot, frame_t frame) { (void)slot, (void)frame; repairs++; }
void request_go_on(uint64_t slot) { assert_int_equal(slot, SLOT); }

/* --- a scrub of the page --- */

static int set_up(void **state)
{
        (void)state;
        memset(frames, 0, NFRAMES * sizeof(*frames));
        for (unsigned f = 0; f < NFRAMES; f++)
                frames[f].slot = SLOT_NONE;
        control.frame_table = (uint64_t)frames;
        control.nframes = NFRAMES;
        slab = (struct far_slab){ .places = 2 };
        for (unsigned k = 0; k < 2; k++) {
                static struct node_option option = { .origin = "a node" };
                node[k] = (struct far_node){ .option = &option, .index = k, .up = true };
                slab.place[k].node = &node[k];
                first_says[k] = then_says[k] = k ? CHECK_RIGHT : CHECK_WRONG;
                reads[k] = 0;
        }
        *slot_word(maps, SLOT) = SLOT_OWNED;
        *slot_sum(maps, SLOT) = SUM;
        given = shares = being_written = goes_away = false;
        owns = may_write = true;
        spoiled = repairs = missed = held = 0;
        under_way = 0;
        nasked = 0;
        meanwhile = NULL;
        return 0;
}

/* In frame f, mapped, with this word of the frame and these bits of its entry. */
static void page_in(unsigned f, uint64_t word, pte_t bits)
{
        frames[f].word = word;
        frames[f].slot = SLOT;
        entry = (frame_pfn0() + f) << PAGE_SHIFT | PTE_P | bits;
        frames[f].pte = &entry;
}

static void answer(frame_t frame, unsigned k, check_fn *over)
{
        if (!k && reads[0] < 2)
                read_at[reads[0]] = clock_ms;
        over(frame, reads[k]++ ? then_says[k] : first_says[k]);
}

static struct scrub_report scrub_it(void)
{
        struct scrub_report r;
        unsigned was_repaired = repairs;

        scrub_begin(0, 1, true);
        for (unsigned i = 0; scrub_runs(); i++) {
                assert_true(i < 1000);
                scrub_step();
                clock_ms += 10;
                unsigned n = nasked;
                nasked = 0;             /* the answers may ask again, at most once in all */
                for (unsigned k = 0; k < n; k++)
                        answer(asked[k].frame, asked[k].k, asked[k].over);
                if (reads[0] + reads[1] == 5 && meanwhile)
                        meanwhile();
                if (repairs > was_repaired) {
                        was_repaired = repairs;
                        held--;
                        copied(3);
                }
        }
        assert_int_equal(held, 0);
        assert_int_equal(under_way, 0);
        scrub_report(&r);
        assert_int_equal(r.state, SCRUB_OVER);
        return r;
}

static void is_called_wrong(void)
{
        struct scrub_report r = scrub_it();

        assert_int_equal(r.count[SCRUB_PAGES], 1);
        assert_int_equal(r.count[SCRUB_BAD], 1);
        assert_int_equal(r.count[SCRUB_REPAIRED], 1);
        assert_int_equal(r.count[SCRUB_LOST], 0);
        assert_int_equal(spoiled, 1);
        assert_int_equal(repairs, 1);
        assert_int_equal(reads[0], 3);          /* once, and twice while it was held */
        assert_true(read_at[1] - read_at[0] >= AGAIN_MS);       /* kern names it meanwhile */
}

static void nothing_is_said(void)
{
        struct scrub_report r = scrub_it();

        assert_int_equal(r.count[SCRUB_BAD], 0);
        assert_int_equal(r.count[SCRUB_LOST], 0);
        assert_int_equal(spoiled | repairs, 0);
}

/* --- tests --- */

static void all_is_right(void **state)
{
        (void)state;
        first_says[0] = CHECK_RIGHT;
        nothing_is_said();
        assert_int_equal(reads[0] + reads[1], 2);
}

static void in_no_frame(void **state) { (void)state; is_called_wrong(); }

/* The page is in a frame, and as it was written. */
static void in_a_clean_frame(void **state)
{
        (void)state;
        page_in(7, FRAME_RESIDENT, 0);
        is_called_wrong();
}

/* The frame may have changed while it was written: no process reads the far page then. */
static void in_a_frame_that_may_have_changed(void **state)
{
        static const struct { uint64_t word; pte_t bits; } cases[] = {
                { FRAME_RESIDENT | FRAME_DIRTY, 0 }, { FRAME_RESIDENT, PTE_D },
                { FRAME_RESIDENT | FRAME_CLAIMED, 0 }, { FRAME_RESIDENT | 1, 0 }
        };

        for (unsigned i = 0; i < 4; i++)
                for (unsigned k = 0; k < 3; k++) {
                        set_up(state);
                        page_in((unsigned[]){ 3, FRAMES, NFRAMES - 1 }[k], cases[i].word,
                                cases[i].bits);
                        nothing_is_said();
                }
        set_up(state);                  /* no entry names the frame */
        page_in(3, FRAME_RESIDENT, 0);
        frames[3].pte = NULL;
        nothing_is_said();
        set_up(state);                  /* an entry names another frame */
        page_in(3, FRAME_RESIDENT, 0);
        entry += 1u << PAGE_SHIFT;
        nothing_is_said();
        set_up(state);                  /* the entry is being made or unmade */
        page_in(3, FRAME_RESIDENT, 0);
        entry = pte_make_busy(frame_pfn0() + 3, 0);
        nothing_is_said();
}

/* A free frame links to another one where its slot was. */
static void free_frame_of_that_number(void **state)
{
        (void)state;
        page_in(3, 0, PTE_D);
        is_called_wrong();
}

static void written_meanwhile(void **state)
{
        (void)state;
        being_written = true;
        nothing_is_said();
}

static void change_sum(void) { *slot_sum(maps, SLOT) = SUM + 1; }
static void let_it_go(void) { goes_away = true; }

static void another_page_by_now(void **state)
{
        goes_away = true;
        nothing_is_said();
        set_up(state);
        meanwhile = let_it_go;
        nothing_is_said();
        set_up(state);
        meanwhile = change_sum;
        nothing_is_said();
}

static void never_written(void **state)
{
        (void)state;
        *slot_sum(maps, SLOT) = 0;
        assert_int_equal(scrub_it().count[SCRUB_PAGES], 0);
        assert_int_equal(reads[0] + reads[1], 0);
}

static void spoiled_on_the_way(void **state)
{
        (void)state;
        then_says[0] = CHECK_RIGHT;
        nothing_is_said();
}

static void nobody_may_write(void **state)
{
        (void)state;
        may_write = false;
        struct scrub_report r = scrub_it();
        assert_int_equal(r.count[SCRUB_BAD], 1);
        assert_int_equal(r.count[SCRUB_REPAIRED], 0);
        assert_int_equal(spoiled, 1);
        assert_int_equal(missed, 1);            /* so that a process that may write repairs it */
}

/* No process writes a shared slot, so no frame is looked at. */
static void shared(void **state)
{
        (void)state;
        *slot_word(maps, SLOT) = SLOT_SHARED;
        shares = true;
        owns = false;
        page_in(3, FRAME_RESIDENT | FRAME_DIRTY, 0);
        is_called_wrong();
}

static void both_wrong(void **state)
{
        (void)state;
        first_says[1] = then_says[1] = CHECK_WRONG;
        struct scrub_report r = scrub_it();
        assert_int_equal(r.count[SCRUB_BAD], 2);
        assert_int_equal(r.count[SCRUB_LOST], 1);
        assert_int_equal(r.losses, 1);
        assert_int_equal(r.loss[0].slot, SLOT);
        assert_int_equal(repairs, 0);
}

/* The other copy may be right. */
static void other_is_silent(void **state)
{
        (void)state;
        node[1].up = false;
        struct scrub_report r = scrub_it();
        assert_int_equal(r.count[SCRUB_BAD], 1);
        assert_int_equal(r.count[SCRUB_UNREAD], 1);
        assert_int_equal(r.count[SCRUB_LOST], 0);
        assert_int_equal(spoiled | repairs, 0);
}

#define test_of(t) cmocka_unit_test_setup(t, set_up)

int main(void)
{
        const struct CMUnitTest tests[] = {
                test_of(all_is_right), test_of(in_no_frame), test_of(in_a_clean_frame),
                test_of(in_a_frame_that_may_have_changed), test_of(free_frame_of_that_number),
                test_of(written_meanwhile), test_of(another_page_by_now),
                test_of(spoiled_on_the_way), test_of(nobody_may_write), test_of(shared),
                test_of(never_written), test_of(both_wrong), test_of(other_is_silent)
        };

        frames = calloc(NFRAMES, sizeof(*frames));
        maps = aligned_alloc(PAGE_SIZE, 2 * SLAB_MAP_SIZE);
        if (!frames || !maps)
                return 1;
        memset(maps, 0, 2 * SLAB_MAP_SIZE);
        int status = cmocka_run_group_tests(tests, NULL, NULL);
        free(frames);
        free(maps);
        return status;
}
