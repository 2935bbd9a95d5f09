/*
 * The prefetch policies: each against its rule, and `auto` in a simulation of a program, a cache
 * and a wire (lookahead_sim.h).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "lookahead_sim.h"

#define LIMIT (1ull << LOOKAHEAD_PAGE_BITS)

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed % below;
}

static int setup(void **state)
{
        (void)state;
        seed = 0x2545f4914f6cdd1d;
        return 0;
}

#include "test_lookahead_rules.h"
#include "test_lookahead_auto.h"
#include "test_lookahead_programs.h"

int main(void)
{
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, setup)
                T(test_none), T(test_trend_oracle), T(test_trend_window), T(test_trend_vote),
                T(test_trend_late), T(test_readahead_up), T(test_readahead_down),
                T(test_readahead_random), T(test_readahead_shrinks), T(test_readahead_limits),
                T(test_hits_unknown), T(test_auto_opens), T(test_auto_late), T(test_auto_passed),
                T(test_auto_unused), T(test_auto_sample), T(test_auto_resident),
                T(test_auto_foreign), T(test_auto_again), T(test_auto_unknown), T(test_auto_cut),
                T(test_auto_bounds), T(test_auto_said),
                T(test_auto_finer), T(test_auto_usual),
                T(test_auto_doubt), T(test_auto_least_recent), T(test_random_faults),
                T(test_settings_change), T(test_sim_regular), T(test_sim_wire_bound),
                T(test_sim_mixed), T(test_sim_irregular), T(test_sim_ends), T(test_sim_not_spared),
                T(test_sim_unknown), T(test_sim_small_cache),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
