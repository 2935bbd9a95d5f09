/*
 * Charges (kern/base/charge.c): by batches far from the commit limit, exact at it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include <pthread.h>
#include "base/kern.h"

static _Thread_local struct vcpu_fixed self;    /* each thread is a vCPU */
#define vcpu_self_fixed self
#include "base/charge.c"

#define THREADS 4
#define ROUNDS  100000
#define LIMIT   1000
#define RESERVE (160 / 16 + 64)        /* of a cache of 160 frames */

struct control control;

_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        fail_msg("kern_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        abort();
}

static int setup(void **state)
{
        (void)state;
        control.nframes = 160;
        control.far_pages = LIMIT - 160 + RESERVE;
        mm_charge_init();
        assert_int_equal(mm_limit(), LIMIT);
        return 0;
}

/* The counter changes once a batch, in both directions. */
static void test_batches(void **state)
{
        unsigned changes = 0;
        uint64_t last = 0;

        (void)state;
        for (unsigned i = 1; i <= 10 * BATCH; i++) {
                assert_int_equal(mm_charge_page(), 0);
                assert_int_equal(mm_charged(), i);
                changes += charged.n != last;
                last = charged.n;
        }
        assert_int_equal(changes, 10);
        for (unsigned i = 10 * BATCH; i > 0; i--) {
                env_uncharge_page();
                assert_int_equal(mm_charged(), i - 1);
                changes += charged.n != last;
                last = charged.n;
        }
        assert_in_range(changes, 10 + 8, 10 + 10);
        assert_true(charged.n <= 2 * BATCH);
}

/* All may be charged, whoever has charges in stock. */
static void test_limit(void **state)
{
        (void)state;
        self.number = 1;
        assert_int_equal(mm_charge_page(), 0);
        self.number = 2;
        assert_int_equal(mm_charge_page(), 0);
        self.number = 0;
        assert_int_equal(mm_charge(LIMIT - 2), true);
        assert_int_equal(mm_charged(), LIMIT);
        assert_int_equal(mm_charge(1), false);
        assert_int_equal(mm_charge_page(), -ENOMEM);
        self.number = 1;
        env_uncharge_page();
        self.number = 2;
        assert_int_equal(mm_charge_page(), 0);
        assert_int_equal(mm_charge_page(), -ENOMEM);
        mm_uncharge(LIMIT - 2);
        assert_int_equal(mm_charged(), 2);
        assert_int_equal(mm_charge(LIMIT - 1), false);
        assert_int_equal(mm_charge(UINT64_MAX), false);
        assert_int_equal(mm_charge(LIMIT - 2), true);
}

/* Near the limit a page takes no more than its own charge. */
static void test_near_limit(void **state)
{
        (void)state;
        assert_int_equal(mm_charge(LIMIT - RESERVE - BATCH), true);
        assert_int_equal(mm_charge_page(), 0);
        assert_int_equal(charged.n, LIMIT - RESERVE);
        self.number = 1;
        for (unsigned i = 1; i <= RESERVE; i++) {
                assert_int_equal(mm_charge_page(), 0);
                assert_int_equal(charged.n, LIMIT - RESERVE + i);
        }
        for (unsigned i = 1; i < BATCH; i++)    /* those that vCPU 0 has in stock */
                assert_int_equal(mm_charge_page(), 0);
        assert_int_equal(mm_charge_page(), -ENOMEM);
        assert_int_equal(mm_charged(), LIMIT);
        self.number = 0;
}

static _Atomic uint64_t in_use, refused, beyond;
static uint64_t share;                  /* pages that a thread uses at most */

static void *charge_thread(void *arg)
{
        uint64_t random = (uint64_t)(uintptr_t)arg + 1, have = 0;

        self.number = (uint32_t)(uintptr_t)arg;
        for (unsigned i = 0; i < ROUNDS; i++) {
                random = random * 6364136223846793005ull + 1442695040888963407ull;
                /* up and down by turns */
                bool more = random >> 62 ? i >> 12 & 1 : !(i >> 12 & 1);
                if (more && have < share && mm_charge_page() == 0) {
                        have++;
                        beyond += atomic_fetch_add(&in_use, 1) >= LIMIT;
                } else if (more && have < share) {
                        refused++;
                } else if (!more && have > 0) {
                        atomic_fetch_sub(&in_use, 1);
                        env_uncharge_page();
                        have--;
                }
        }
        for (; have > 0; have--) {
                atomic_fetch_sub(&in_use, 1);
                env_uncharge_page();
        }
        return NULL;
}

static void run_threads(uint64_t each)
{
        pthread_t thread[THREADS];

        refused = 0;
        share = each;
        for (uintptr_t i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&thread[i], NULL, charge_thread, (void *)i), 0);
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(thread[i], NULL);
        assert_int_equal(beyond, 0);
        assert_int_equal(mm_charged(), 0);
        assert_true(mm_charge(LIMIT));
        mm_uncharge(LIMIT);
}

/* Never more than the limit.  No thread is refused while all together, with the batch that each may
 * have under way between counter and stock, stay below it.  One that wants more than there is must
 * be. */
static void test_threads(void **state)
{
        (void)state;
        run_threads(LIMIT / THREADS - BATCH);
        assert_int_equal(refused, 0);
        run_threads(LIMIT + 1);
        assert_true(refused > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, setup)
                T(test_batches), T(test_limit), T(test_near_limit), T(test_threads),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
