/*
 * When repair.c tries a page again, when it says that copies are whole, and when a node is drained:
 * some pages with one good copy of two.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "side_hooks.h"
#include "far/held.c"
#include "far/whole.c"
#include "far/repair.c"

#define SLOTS 40u                       /* more than two runs */
#define LATER 3600000                   /* ms */

/* --- what is around it --- */

struct options opt;
static const struct far_driver driver = { .kind = SLAB_REMOTE };
static struct far_node node[2];
static struct far_slab slab;
static bool lacks[SLOTS];               /* the second copy */
static bool needs[SLOTS];               /* only a draining node has it */
static bool unfit[SLOTS];               /* repair.c has said so */
static unsigned others_lack;            /* pages of slab 0 that other processes have */
static unsigned whole, all_whole;       /* how often that was said */

void warnx_(const char *fmt, ...)
{
        if (strstr(fmt, "the copies of all processes again")) {
                all_whole++;
                return;
        }
        assert_non_null(strstr(fmt, "have their copies again"));
        whole++;
}
uint64_t walk_next(uint64_t *at, unsigned *look)
{
        (void)look;
        return *at < SLOTS ? (*at)++ : WALK_END;
}
struct far_slab *far_slab(uint32_t i) { assert_true(i < control.nslabs); return &slab; }
bool tree_shares(const struct tree *t, uint64_t slot) { (void)t, (void)slot; return false; }
int tree_release(struct tree *t, const uint64_t *slots, size_t n)
{
        (void)t, (void)slots, (void)n;
        return 0;
}
bool copies_drain(const struct copies *c, const struct far_node *n)
{
        (void)c;
        return atomic_load(&TREE_COMMON->draining) >> n->index & 1;
}
bool copies_only_draining(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        (void)c, (void)s;
        return needs[slot];
}
bool copies_wanting(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        (void)c, (void)s;
        return lacks[slot];
}
bool copies_any_wanting(const struct copies *c, const struct far_slab *s, uint32_t i, uint32_t n)
{
        (void)c, (void)s;
        for (uint32_t slot = 0; slot < n && slot < SLOTS; slot++)
                if (lacks[slot] && !unfit[slot])
                        return true;
        return i == 0 && others_lack > 0;
}
void copies_unfit(const struct copies *c, uint64_t slot) { (void)c; unfit[slot] = true; }
unsigned copies_to_repair(const struct copies *c, const struct far_slab *s, uint64_t slot)
{
        (void)c, (void)s;
        return lacks[slot] ? 2 : 0;
}

/* --- the I/O side --- */

enum answer { COPIED, NOT_NOW, BEING_WRITTEN, UNFIT };
static enum answer answers[SLOTS];
static unsigned tries[SLOTS];
static int64_t tried[SLOTS];            /* when it was for the last time */

static void answer(uint64_t slot)
{
        switch (answers[slot]) {
        case COPIED:
                lacks[slot] = needs[slot] = false;
                repair_done(slot, 2);
                break;
        case NOT_NOW:
                repair_done(slot, 0);
                break;
        case BEING_WRITTEN:
                repair_put_off(slot);
                break;
        case UNFIT:
                repair_unfit(slot);
                break;
        }
}

/* A copy that is begun is answered a step later. */
static void pass_time(int64_t ms)
{
        for (int64_t until = clock_ms + ms; clock_ms < until; ) {
                uint64_t slot[REPAIR_FRAMES + 1];
                frame_t frame;
                unsigned n = 0;
                while (repair_next(&slot[n], &frame)) {
                        tries[slot[n]]++;
                        tried[slot[n]] = clock_ms;
                        n++;
                        assert_in_range(n, 1, REPAIR_FRAMES);
                }
                int patience = repair_patience();
                clock_ms += n || patience < 1 ? 1 : patience;
                for (unsigned i = 0; i < n; i++)
                        answer(slot[i]);
        }
}

static int set_up(void **state)
{
        (void)state;
        memset(maps, 0, 2 * SLAB_MAP_SIZE);
        repair_forked();
        opt.replicas = 2;
        control.nslabs = 1;
        for (unsigned i = 0; i < SLABS_MAX; i++)
                control.slabs[i] = (struct slab){ .kind = SLAB_REMOTE, .pages = SLOTS };
        repair.copied = 0;
        repair.needed = false;
        repair.missed = 0;
        clock_ms += LATER;
        repair.next_pass = clock_ms + LOOK_MS;
        slab = (struct far_slab){ .places = 2 };
        for (unsigned k = 0; k < 2; k++) {
                node[k] = (struct far_node){ .driver = &driver, .index = k, .up = true };
                slab.place[k].node = &node[k];
        }
        for (unsigned i = 0; i < SLOTS; i++) {
                *slot_word(maps, i) = SLOT_OWNED;
                lacks[i] = true;
                needs[i] = unfit[i] = false;
                answers[i] = COPIED;
                tries[i] = 0;
        }
        whole = all_whole = others_lack = 0;
        atomic_store(&TREE_COMMON->numbers, 2);
        return 0;
}

/* --- tests --- */

static void all_are_copied(void **state)
{
        (void)state;
        pass_time(100);
        for (unsigned i = 0; i < SLOTS; i++)
                assert_int_equal(tries[i], 0);  /* repair_wanted() was not called yet */
        repair_wanted();
        pass_time(100);
        for (unsigned i = 0; i < SLOTS; i++)
                assert_int_equal(tries[i], 1);
        assert_int_equal(whole, 1);
        pass_time(LATER);
        repair_wanted();
        pass_time(LATER);
        assert_int_equal(whole, 1);
}

/* Such a page was tried without a pause before, and kept the others from being called whole. */
static void unfit_is_not_tried_again(void **state)
{
        (void)state;
        answers[7] = answers[SLOTS - 1] = UNFIT;
        repair_wanted();
        pass_time(100);
        assert_int_equal(whole, 1);
        pass_time(LATER);
        assert_in_range(tries[7], 1, 2);
        assert_in_range(tries[SLOTS - 1], 1, 2);
        answers[7] = COPIED;
        repair_missed();                /* when it left the cache, say */
        pass_time(LOOK_MS + 1000);
        assert_false(lacks[7]);
}

static void tried_again_after(enum answer first)
{
        answers[7] = first;
        repair_wanted();
        pass_time(100);
        assert_int_equal(whole, 0);
        unsigned before = tries[7];
        assert_in_range(before, 1, 2);
        int64_t last = tried[7];
        pass_time(AGAIN_MS + IDLE_MS);
        assert_in_range(tries[7], before + 1, before + 2);
        assert_true(tried[7] - last >= AGAIN_MS);
        assert_int_equal(whole, 0);
        answers[7] = COPIED;
        pass_time(AGAIN_MS + IDLE_MS);
        assert_false(lacks[7]);
        assert_int_equal(whole, 1);
}

static void not_copied(void **state)
{
        (void)state;
        tried_again_after(NOT_NOW);
}

static void put_off(void **state)
{
        (void)state;
        tried_again_after(BEING_WRITTEN);
}

/* Of a page that scrub.c holds, no copy is begun before it lets go. */
static void held_already(void **state)
{
        const void *word;

        (void)state;
        assert_int_equal(held_take(HELD_SCRUB, 7, false, NULL), 0);
        repair_wanted();
        pass_time(100);
        assert_int_equal(tries[7], 0);
        assert_int_equal(whole, 0);
        held_let_go(HELD_SCRUB);
        pass_time(AGAIN_MS + IDLE_MS);
        assert_int_equal(tries[7], 1);
        assert_int_equal(whole, 1);
        assert_int_equal(held_under_way(&word), 0);
}

static void begin_draining(void)
{
        atomic_store(&TREE_COMMON->draining, 1);
        assert_false(repair_has_drained());
}

/* Not before a page has a copy elsewhere, and soon then. */
static void needed_page_holds_up(void **state)
{
        for (unsigned i = 0; i < 2; i++) {      /* a write asks for a pass itself when it is over */
                set_up(state);
                needs[7] = true;
                answers[7] = i ? UNFIT : NOT_NOW;
                begin_draining();
                pass_time(LATER / 100);
                assert_false(repair_has_drained());
                assert_in_range(tries[7], LATER / 100 / (NEED_MS + IDLE_MS),
                                LATER / 100 / NEED_MS + 2);
                answers[7] = COPIED;
                pass_time(NEED_MS + 100);
                assert_true(repair_has_drained());
        }
}

/* A node that is not the only one to have a page is drained, whatever the page lacks. */
static void others_do_not(void **state)
{
        for (enum answer a = COPIED; a <= UNFIT; a++) {
                set_up(state);
                answers[7] = a;
                begin_draining();
                pass_time(100);
                assert_true(repair_has_drained());
        }
        set_up(state);
        assert_int_equal(held_take(HELD_SCRUB, 7, false, NULL), 0);
        begin_draining();
        pass_time(100);
        assert_true(repair_has_drained());
        held_let_go(HELD_SCRUB);
}

/* That is said once, when no process wants copies any more; also if a page has none that fits. */
static void all_processes_are_whole(void **state)
{
        (void)state;
        answers[7] = UNFIT;
        others_lack = 1;
        repair_wanted();
        pass_time(LATER);
        assert_int_equal(whole, 1);
        assert_int_equal(all_whole, 0);
        others_lack = 0;
        pass_time(TREE_LOOK_MS + IDLE_MS + 1);
        assert_int_equal(all_whole, 1);
        pass_time(LATER);
        assert_int_equal(all_whole, 1);
        /* another process has copied its pages */
        whole_copied();
        pass_time(LATER);
        assert_int_equal(all_whole, 2);
        assert_int_equal(whole, 1);
}

/* The last one says so at once; a program of one process has said it already. */
static void the_last_process_is_whole(void **state)
{
        for (unsigned n = 1; n < 3; n++) {
                set_up(state);
                atomic_store(&TREE_COMMON->numbers, n);
                repair_wanted();
                pass_time(100);
                assert_int_equal(whole, 1);
                assert_int_equal(all_whole, n - 1);
        }
}

/* Of many slabs it looks at some at a time, and from the first one on after a pass. */
static void looks_at_all_slabs(void **state)
{
        (void)state;
        control.nslabs = 3 * SLABS_LOOKED_AT;
        memset(lacks, 0, sizeof(lacks));
        whole_copied();
        whole_look(clock_ms);
        assert_true(whole_goes_on());
        others_lack = 1;                /* in a slab that it has looked at */
        repair_wanted();
        pass_time(LATER);
        assert_int_equal(all_whole, 0);
        others_lack = 0;
        pass_time(TREE_LOOK_MS + IDLE_MS + 10);
        assert_int_equal(all_whole, 1);
        assert_false(whole_goes_on());
}

#define test_of(t) cmocka_unit_test_setup(t, set_up)

int main(void)
{
        const struct CMUnitTest tests[] = {
                test_of(all_are_copied), test_of(unfit_is_not_tried_again), test_of(not_copied),
                test_of(put_off), test_of(held_already), test_of(needed_page_holds_up),
                test_of(others_do_not), test_of(all_processes_are_whole),
                test_of(the_last_process_is_whole), test_of(looks_at_all_slabs)
        };

        maps = aligned_alloc(PAGE_SIZE, 2 * SLAB_MAP_SIZE);
        if (!maps)
                return 1;
        int status = cmocka_run_group_tests(tests, NULL, NULL);
        free(maps);
        return status;
}
