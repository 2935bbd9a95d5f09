/*
 * Model check of the table of guides (kern/space/guides.c): simulated vCPUs find guides and stay in
 * them, while others add, drop and forget guides.  Each may be interrupted before and after each
 * atomic operation.
 *
 * The function of a guide says which range it is for.  A guide that is found must be for the
 * address, and stay as it is until the vCPU leaves it; when guides_drop() is over, no vCPU is in a
 * guide that it dropped; and where one is there all the time, one is found.
 *
 *   SEED=n STEPS=n test_guides_model
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "base/kern.h"
#include "pager/pte.h"
#include "pager_sched.h"

struct control control;

#include "abi_guide.h"
#undef GUIDES_MAX
#define GUIDES_MAX 4                    /* so that entries are used again soon */
#include "pager_hooks.h"
#include "space/guides.c"

#define FINDERS 3
#define WRITERS 2
#define ROUNDS  12                      /* of an actor in a run */
#define RANGES  4                       /* whose guides come and go; one guide covers all */
#define RANGE   0x1000ull
#define ALL     RANGES                  /* as a range */

static uint64_t made, found, waited;
static unsigned long_wait;              /* looks of a drop at a guide that runs */
static unsigned inside[FINDERS];        /* the number of the guide that the actor is in */

static bool is_free(void *arg) { return !*(uint32_t *)arg; }

void lock_take(struct lock *l)
{
        while (l->v) {
                sched_wait(is_free, &l->v);
                point();
        }
        l->v = 1;
        point();
}

void lock_drop(struct lock *l)
{
        l->v = 0;
        point();
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)op, (void)a0, (void)a1, (void)a2;
        waited++;
        if (++long_wait > 10000)
                sched_fail("a drop waits for no vCPU");
        sched_delay(20);
        return 0;
}

/* fn of guide i for range r; 0 < i. */
static uint64_t function(uint64_t i, uint64_t r) { return i << 8 | r; }

static uint64_t start_of(uint64_t r) { return (r + 1) * RANGE; }

static int add(uint64_t r)
{
        struct guide g = { .start = start_of(r), .end = start_of(r + 1), .mapped = r != ALL };

        if (r == ALL)
                g.start = 0;
        g.fn = function(++made, r);
        g.arg = ~g.fn;
        return guides_add(&g);
}

static void stay(unsigned me, const struct guide *g, uint64_t fn)
{
        inside[me] = (unsigned)(fn >> 8);
        for (unsigned i = rnd(6); i; i--) {
                point();
                if (g->fn != fn || g->arg != ~fn)
                        sched_fail("guide %#lx became %#lx while it ran", (unsigned long)fn,
                                   (unsigned long)g->fn);
        }
        inside[me] = 0;
}

static void finder(void *arg)
{
        unsigned me = (unsigned)(uintptr_t)arg;

        for (unsigned i = 0; i < ROUNDS; i++) {
                uint64_t r = rnd(RANGES), fn, a;
                struct guide *g = guides_find(start_of(r) + rnd(2) * (RANGE - 1), &fn, &a);

                if (!g) {
                        sched_fail("a guide that was there is not found");
                        break;
                }
                if (((fn & 0xff) != r && (fn & 0xff) != ALL) || a != ~fn)
                        sched_fail("range %lu has guide %#lx, argument %#lx", (unsigned long)r,
                                   (unsigned long)fn, (unsigned long)a);
                found++;
                stay(me, g, fn);
                if (chance(4))
                        guides_count(g, (fn & 0xff) != ALL && chance(2) ? GUIDE_TOUCHED
                                                                        : GUIDE_RETURNED);
                guides_leave(g);
        }
}

static void drop(uint64_t r)
{
        const uint64_t before = made;

        long_wait = 0;
        guides_drop(start_of(r), start_of(r + 1));
        for (unsigned i = 0; i < FINDERS; i++)
                for (int k = 0; inside[i] && inside[i] <= before && k < GUIDES_MAX; k++)
                        if (table[k].fn == function(inside[i], r) && table[k].state == GUIDE_OFF)
                                sched_fail("a guide that was dropped runs");
}

/* The first writer drops guides, the second forgets them, which waits for no vCPU. */
static void writer(void *arg)
{
        bool drops = arg == NULL;

        for (unsigned i = 0; i < ROUNDS; i++) {
                uint64_t r = rnd(RANGES / 2) + (drops ? 0 : RANGES / 2);
                if (!chance(3))
                        add(r);
                else if (drops)
                        drop(r);
                else            /* all of the range, or its first half */
                        guides_forget(start_of(r), start_of(r) + (rnd(2) ? RANGE : RANGE / 2));
        }
}

static void tick(void) {}

static void test_model(void **state)
{
        const uint64_t steps = sched_setting("STEPS", 2000000 / sched_slow);
        uint64_t seed = sched_setting("SEED", (uint64_t)time(NULL));

        (void)state;
        printf("# SEED=%lu STEPS=%lu\n", (unsigned long)seed, (unsigned long)steps);
        for (; sched_steps < steps; seed++) {
                sched_seed(seed);
                memset(table, 0, sizeof(table));
                memset(inside, 0, sizeof(inside));
                guides_on = used = 0;
                order = made = 0;
                sched_reset(2 + rnd(10), tick);
                assert_int_equal(add(ALL), 0);
                for (unsigned i = 0; i < FINDERS; i++)
                        sched_spawn(finder, (void *)(uintptr_t)i);
                for (unsigned i = 0; i < WRITERS; i++)
                        sched_spawn(writer, (void *)(uintptr_t)i);
                if (sched_run() != 0)
                        fail_msg("SEED=%lu STEPS=1 shows it again", (unsigned long)seed);
        }
        printf("# %lu guides found, %lu waits of drops\n", (unsigned long)found,
               (unsigned long)waited);
        assert_true(found > 0 && waited > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
