/*
 * Members of a client at memnode: generations are admitted once and in order, a cut is for ever,
 * and the ranges of cut numbers stay few.  Against a model that keeps a bit a number.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "memnode/members.h"

static struct members m;

static int setup(void **state)
{
        (void)state;
        m = (struct members){ 0 };
        return 0;
}
static int teardown(void **state)
{
        (void)state;
        members_free(&m);
        return 0;
}

static void a_generation_is_admitted_once(void **state)
{
        (void)state;
        assert_int_equal(members_admit(&m, 1, 0, 1), 0);
        assert_int_equal(members_admit(&m, 1, 0, 1), -ESTALE);
        assert_int_equal(members_admit(&m, 1, 0, 5), 0);
        assert_int_equal(members_admit(&m, 1, 0, 4), -ESTALE);
        assert_int_equal(members_admit(&m, 1, 1, 1), 0);        /* each link counts by itself */
        assert_int_equal(members_admit(&m, 2, 0, 1), 0);        /* and each member */
        assert_int_equal(members_admit(&m, 1, 0, UINT32_MAX), 0);
        assert_int_equal(members_admit(&m, 1, 0, UINT32_MAX), -ESTALE);
}

static void what_makes_no_sense_is_refused(void **state)
{
        (void)state;
        assert_int_equal(members_admit(&m, 0, 0, 1), -EINVAL);
        assert_int_equal(members_admit(&m, 1, 0, 0), -EINVAL);
        assert_int_equal(members_admit(&m, 1, MEMBER_LINKS, 1), -EINVAL);
        assert_int_equal(members_cut(&m, 0, 1), -EINVAL);
        assert_int_equal(members_cut(&m, 2, 1), -EINVAL);
        assert_int_equal(m.nknown + m.ncut, 0);
}

static void a_cut_member_never_comes_back(void **state)
{
        (void)state;
        assert_int_equal(members_admit(&m, 7, 0, 1), 0);
        assert_int_equal(members_cut(&m, 7, 7), 0);
        assert_int_equal(members_admit(&m, 7, 0, 2), -EPERM);
        assert_int_equal(members_cut(&m, 9, 9), 0);             /* which never connected */
        assert_int_equal(members_admit(&m, 9, 0, 1), -EPERM);
        assert_int_equal(members_admit(&m, 8, 0, 1), 0);
        assert_int_equal(members_cut(&m, 7, 9), 0);             /* repeated, and more */
        assert_int_equal(m.ncut, 1);
        assert_int_equal(m.nknown, 0);
        assert_int_equal(members_cut(&m, UINT64_MAX, UINT64_MAX), 0);
        assert_int_equal(members_admit(&m, UINT64_MAX, 0, 1), -EPERM);
        assert_int_equal(members_cut(&m, 1, UINT64_MAX), 0);
        assert_int_equal(m.ncut, 1);
}

/* A tree that forks a million times, of which few processes live at a time. */
static void memory_follows_the_living(void **state)
{
        (void)state;
        for (uint64_t n = 1; n <= 1000000; n++) {
                assert_int_equal(members_admit(&m, n, n % MEMBER_LINKS, 1), 0);
                if (n > 100 && n % 1000)        /* every thousandth lives on */
                        assert_int_equal(members_cut(&m, n - 100, n - 100 + (n % 1000 == 99)), 0);
        }
        assert_in_range(m.nknown, 1, 2500);
        assert_in_range(m.ncut, 1, 2500);
}

static void there_are_limits(void **state)
{
        (void)state;
        for (uint64_t n = 1; n <= MEMBERS_KNOWN; n++)
                assert_int_equal(members_admit(&m, 2 * n, 0, 1), 0);
        assert_int_equal(members_admit(&m, 1, 0, 1), -EUSERS);
        assert_int_equal(members_admit(&m, 2, 0, 2), 0);        /* a known member may come back */
        for (uint64_t n = 1; n <= MEMBERS_KNOWN; n++)
                assert_int_equal(members_cut(&m, 3 * n, 3 * n), 0);
        assert_int_equal(members_cut(&m, 1000000, 1000000), -EUSERS);
        assert_int_equal(members_cut(&m, 1, 1000000), 0);
        assert_int_equal(m.ncut, 1);
}

/* Random cuts and connections among few numbers, so that ranges meet in every way. */
static void agrees_with_a_bit_a_number(void **state)
{
        enum { NUMBERS = 64 };
        static uint32_t seen[NUMBERS][MEMBER_LINKS];
        static uint8_t gone[NUMBERS];

        (void)state;
        srandom(1);
        for (unsigned round = 0; round < 2000; round++) {
                memset(seen, 0, sizeof(seen));
                memset(gone, 0, sizeof(gone));
                for (unsigned step = 0; step < 100; step++) {
                        uint64_t a = 1 + (uint64_t)random() % (NUMBERS - 1);
                        uint64_t b = a + (uint64_t)random() % (random() % 8 ? 2 : NUMBERS - a);
                        if (random() % 3 == 0 && b < NUMBERS) {
                                assert_int_equal(members_cut(&m, a, b), 0);
                                memset(gone + a, 1, b - a + 1);
                        }
                        unsigned link = (unsigned)random() % MEMBER_LINKS;
                        uint32_t g = 1 + (uint32_t)random() % 8;
                        int want = gone[a] ? -EPERM : g <= seen[a][link] ? -ESTALE : 0;
                        assert_int_equal(members_admit(&m, a, link, g), want);
                        if (!want)
                                seen[a][link] = g;
                        size_t runs = 0;
                        for (unsigned n = 1; n < NUMBERS; n++) {
                                assert_int_equal(members_is_cut(&m, n), gone[n]);
                                runs += gone[n] && !gone[n - 1];
                        }
                        assert_int_equal(m.ncut, runs);
                }
                members_free(&m);
        }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_generation_is_admitted_once), TEST(what_makes_no_sense_is_refused),
                TEST(a_cut_member_never_comes_back), TEST(memory_follows_the_living),
                TEST(there_are_limits),              TEST(agrees_with_a_bit_a_number),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
