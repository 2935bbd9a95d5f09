/*
 * The table of guides (kern/space/guides.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>
#include "base/exit.h"
#include "base/lock.h"
#include "space/guides.h"

struct control control;
struct vcpu vcpu_self;

static unsigned held, yields;
static struct guide *leaves;            /* at the next yield */
static uint64_t fn, arg;

void lock_take(struct lock *l)
{
        assert_int_equal(held++, 0);
        l->v = 1;
}
void lock_drop(struct lock *l)
{
        assert_int_equal(held--, 1);
        l->v = 0;
}
int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)a0, (void)a1, (void)a2;
        assert_int_equal(op, EXIT_YIELD);
        assert_int_equal(held, 0);
        assert_true(++yields < 1000);
        if (leaves && yields % 3 == 0)
                guides_leave(leaves);
        return 0;
}

static int add_as(uint64_t start, uint64_t end, uint64_t function, bool mapped)
{
        const struct guide g = { .start = start, .end = end, .mapped = mapped, .fn = function,
                                 .arg = ~function, .name = "a guide" };
        return guides_add(&g);
}

static int add(uint64_t start, uint64_t end, uint64_t function)
{
        return add_as(start, end, function, false);
}

/* The function of addr's guide, or 0; no vCPU stays in the guide. */
static uint64_t at(uint64_t addr)
{
        struct guide *g = guides_find(addr, &fn, &arg);

        if (!g)
                return 0;
        assert_int_equal(g->running, 1);
        assert_int_equal(arg, ~fn);
        assert_string_equal(g->name, "a guide");
        guides_leave(g);
        return fn;
}

static int begin(void **state)
{
        (void)state;
        guides_drop(0, UINT64_MAX);
        yields = 0;
        leaves = NULL;
        return guides_on != 0;
}

static void test_ranges(void **state)
{
        (void)state;
        assert_int_equal(at(0x1000), 0);
        assert_int_equal(add(0x1000, 0x3000, 7), 0);
        assert_int_equal(guides_on, 1);
        assert_int_not_equal(control.guides, 0);
        assert_int_equal(at(0xfff), 0);
        assert_int_equal(at(0x1000), 7);
        assert_int_equal(at(0x2fff), 7);
        assert_int_equal(at(0x3000), 0);
        /* Of several, the guide that was made last. */
        assert_int_equal(add(0, 0x10000, 8), 0);
        assert_int_equal(at(0x2000), 8);
        assert_int_equal(add(0x2000, 0x2001, 9), 0);
        assert_int_equal(at(0x2000), 9);
        assert_int_equal(at(0x2001), 8);
        /* By where ranges begin. */
        assert_int_equal(guides_drop(1, 0x1000), 0);
        assert_int_equal(guides_drop(0x1000, 0x2000), 1);
        assert_int_equal(guides_drop(0, 1), 1);
        assert_int_equal(at(0x2001), 0);
        assert_int_equal(at(0x2000), 9);
        assert_int_equal(guides_on, 1);
}

static void test_room(void **state)
{
        (void)state;
        for (uint64_t i = 0; i < GUIDES_MAX; i++)
                assert_int_equal(add(i * 0x1000, i * 0x1000 + 1, i + 1), 0);
        assert_int_equal(add(0, 1, 1), -ENOSPC);
        assert_int_equal(guides_on, GUIDES_MAX);
        /* The place of a guide in which a vCPU still is, is not reused. */
        struct guide *g = guides_find(0x5000, &fn, &arg);
        assert_non_null(g);
        guides_forget(0x5000, 0x5001);
        assert_int_equal(at(0x5000), 0);
        assert_int_equal(add(0, 1, 100), -ENOSPC);
        guides_leave(g);
        assert_int_equal(add(0, 1, 100), 0);
        assert_int_equal(at(0), 100);
        assert_int_equal(guides_on, GUIDES_MAX);
}

static void test_stops(void **state)
{
        (void)state;
        assert_int_equal(add(0, 0x1000, 1), 0);
        struct guide *g = guides_find(0, &fn, &arg);
        for (int i = 0; i < 100; i++) {
                assert_false(guides_count(g, GUIDE_INTERRUPTED));
                assert_false(guides_count(g, GUIDE_RETURNED));
        }
        assert_false(guides_count(g, GUIDE_TOUCHED));
        assert_false(guides_count(g, GUIDE_LATE));
        assert_int_equal(g->state, GUIDE_ON);
        assert_true(guides_count(g, GUIDE_TRAPPED));
        assert_int_equal(g->state, GUIDE_REMOVED);
        assert_false(guides_count(g, GUIDE_CALLED));    /* it is said once */
        guides_leave(g);
        assert_int_equal(at(0), 0);
        assert_int_equal(guides_on, 0);
        /* The next one in its place begins with no stops. */
        for (int i = 0; i < GUIDES_MAX; i++)
                assert_int_equal(add(0, 0x1000, 2), 0);
        for (int i = 0; i < GUIDES_MAX; i++) {
                g = guides_find(0, &fn, &arg);
                assert_false(guides_count(g, GUIDE_TOUCHED));
                guides_leave(g);
                assert_int_equal(at(0), 2);
                g->order = 0;
        }
}

static void test_forgotten(void **state)
{
        (void)state;
        assert_int_equal(add(0x10000, 0x20000, 0x5000), 0);
        guides_forget(0, 0x5000);
        guides_forget(0x5001, 0x6000);
        guides_forget(0x10000, 0x1f000);
        guides_forget(0x11000, 0x20000);
        assert_int_equal(at(0x10000), 0x5000);
        guides_forget(0x5000, 0x5001);  /* its function */
        assert_int_equal(at(0x10000), 0);
        assert_int_equal(add(0x10000, 0x20000, 0x5000), 0);
        guides_forget(0x10000, 0x20000);        /* all of its range */
        assert_int_equal(at(0x10000), 0);
        assert_int_equal(guides_on, 0);
        assert_int_equal(yields, 0);
}

/* A guide whose range was all mapped covers the rest of it, in one piece. */
static void test_cut(void **state)
{
        (void)state;
        assert_int_equal(add_as(0x10000, 0x20000, 0x5000, true), 0);
        guides_forget(0xf000, 0x10000);
        guides_forget(0x20000, 0x21000);
        assert_int_equal(at(0x10000), 0x5000);
        assert_int_equal(at(0x1ffff), 0x5000);
        guides_forget(0xf000, 0x11000);
        assert_int_equal(at(0x10fff), 0);
        assert_int_equal(at(0x11000), 0x5000);
        guides_forget(0x1f000, 0x30000);
        assert_int_equal(at(0x1efff), 0x5000);
        assert_int_equal(at(0x1f000), 0);
        guides_forget(0x11000, 0x13000);
        assert_int_equal(at(0x12fff), 0);
        assert_int_equal(at(0x13000), 0x5000);
        guides_forget(0x14000, 0x15000);        /* a hole */
        assert_int_equal(at(0x13000), 0);
        assert_int_equal(at(0x15000), 0);
        assert_int_equal(guides_on, 0);
}

/* The guides that are on, the oldest first. */
static void test_next(void **state)
{
        struct hint_guide g = { .order = 0 };

        (void)state;
        assert_false(guides_next(0, &g));
        for (uint64_t i = 1; i <= 4; i++)
                assert_int_equal(add(i * 0x1000, i * 0x1000 + i, i), 0);
        guides_drop(0x2000, 0x2001);
        for (uint64_t i = 1; i <= 4; i += i == 1 ? 2 : 1) {
                assert_true(guides_next(g.order, &g));
                assert_int_equal(g.start, i * 0x1000);
                assert_int_equal(g.len, i);
                assert_int_equal(g.fn, i);
                assert_int_equal(g.arg, ~i);
        }
        assert_false(guides_next(g.order, &g));
}

/* A vCPU that drops a guide waits for all that are in it. */
static void test_drop_waits(void **state)
{
        (void)state;
        assert_int_equal(add(0, 0x1000, 1), 0);
        leaves = guides_find(0, &fn, &arg);
        assert_ptr_equal(guides_find(0, &fn, &arg), leaves);
        assert_int_equal(leaves->running, 2);
        assert_int_equal(guides_drop(0, 1), 1);
        assert_int_equal(leaves->running, 0);
        assert_int_equal(yields, 6);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_ranges, begin),
                cmocka_unit_test_setup(test_room, begin),
                cmocka_unit_test_setup(test_stops, begin),
                cmocka_unit_test_setup(test_forgotten, begin),
                cmocka_unit_test_setup(test_cut, begin),
                cmocka_unit_test_setup(test_next, begin),
                cmocka_unit_test_setup(test_drop_waits, begin),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
