/*
 * The wire by the clock (kern/far/wire.c): when pages are due, in which order they come, and many
 * threads at once.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "far/wire.h"
#include "pager/pager.h"

#define ONE ((uint64_t)1 << SLAB_TICK_SHIFT)

static struct wires w;
static const char memory[1 << 16];      /* of slots: never read */

void env_relax(unsigned spins)
{
        if (spins % 16 == 15)
                sched_yield();
}

static int setup(void **state)
{
        (void)state;
        memset(&w, 0, sizeof(w));
        return 0;
}

static bool ask(unsigned node, frame_t frame, uint64_t now)
{
        const struct wire_page page = { .frame = frame, .slot = memory + frame };

        return wire_ask(&w, node, &page, now);
}

static void add(unsigned node, uint64_t latency, uint64_t page)
{
        wire_add(&w, node, &(struct wire_rate){ latency, page });
}

/* 12.5 GB/s at a TSC of 1 GHz is 327.68 ticks a page: no part of a tick is lost. */
static void test_parts_of_ticks(void **state)
{
        const struct wire_rate r = { 2400, 32768 * ONE / 100 };
        struct wire_link l = { 0 };
        uint64_t begun, exact = 0;

        (void)state;
        for (unsigned i = 0; i < 100000; i++) {
                assert_int_equal(wire_send(&l, &r, 1, &begun), 1 + ((exact + r.page) >> 16) + 2400);
                assert_int_equal(begun, 1 + (exact >> 16));
                exact += r.page;
        }
        assert_in_range(l.free, 32767990, 32768001);
}

/* A wire on which nothing is under way begins at once, also after the clock has passed 2^32; one
 * without a limit carries any number of pages at once. */
static void test_idle(void **state)
{
        const struct wire_rate slow = { 10, 100 * ONE }, any = { 10, 0 };
        struct wire_link l = { 0 };
        uint64_t begun;

        (void)state;
        assert_int_equal(wire_send(&l, &slow, 1000, &begun), 1110);
        assert_int_equal(wire_send(&l, &slow, 1001, &begun), 1210);
        assert_int_equal(begun, 1100);
        assert_int_equal(wire_send(&l, &slow, 1ull << 40, &begun), (1ull << 40) + 110);
        assert_int_equal(begun, 1ull << 40);
        l = (struct wire_link){ 0 };
        for (unsigned i = 0; i < 10; i++)
                assert_int_equal(wire_send(&l, &any, 5, &begun), 15);
}

/* Bytes take their share of a page's time, and no part of a tick is lost. */
static void test_bytes(void **state)
{
        const struct wire_rate r = { 10, 100 * ONE };
        struct wire_link l = { 0 };
        uint64_t begun;

        (void)state;
        assert_int_equal(wire_send_bytes(&l, &r, 4096, 1, &begun), 111);
        assert_int_equal(wire_send_bytes(&l, &r, 2048, 1, &begun), 161);
        assert_int_equal(begun, 101);
        for (unsigned i = 0; i < 4096; i++)
                wire_send_bytes(&l, &r, 1, 1, &begun);
        assert_int_equal(wire_send(&l, &r, 1, &begun), 361);
}

static void test_in_order(void **state)
{
        struct wire_page p;
        uint64_t due;

        (void)state;
        add(0, 1000, 10 * ONE);
        assert_false(wire_take(&w, UINT64_MAX, &p));
        for (frame_t f = 0; f < 5; f++)
                assert_true(ask(0, f, 100));
        assert_int_equal(w.next, 1110);
        assert_false(wire_take(&w, 1109, &p));
        for (frame_t f = 0; f < 5; f++) {
                assert_true(wire_find(&w, f, &due));
                assert_int_equal(due, 1110 + f * 10);
                assert_false(wire_take(&w, due - 1, &p));
                assert_true(wire_take(&w, due, &p));
                assert_int_equal(p.frame, f);
                assert_ptr_equal(p.slot, memory + f);
                assert_int_equal(p.queued, f * 10);
                assert_false(wire_find(&w, f, &due));
        }
        assert_int_equal(w.next, 0);
}

/* Each node has a wire of its own; the page that is due first comes first. */
static void test_nodes(void **state)
{
        static const frame_t order[] = { 2, 0, 3, 1 };
        struct wire_page p;

        (void)state;
        add(1, 1000, 500 * ONE);
        add(3, 200, 1000 * ONE);
        ask(1, 0, 0);                   /* due at 1500 */
        ask(1, 1, 0);                   /* 2000 */
        ask(3, 2, 0);                   /* 1200 */
        ask(3, 3, 700);                 /* 2200 */
        for (unsigned i = 0; i < 2; i++) {
                assert_true(wire_take(&w, 1999, &p));
                assert_int_equal(p.frame, order[i]);
        }
        assert_false(wire_take(&w, 1999, &p));
        assert_true(wire_take(&w, 5000, &p));
        assert_int_equal(p.frame, 1);
        assert_true(wire_take(&w, 5000, &p));
        assert_int_equal(p.frame, 3);
}

/* As many are under way as there is room for; places are used again and again. */
static void test_full(void **state)
{
        struct wire_page p;
        frame_t in = 0, out = 0;

        (void)state;
        add(0, 0, ONE);
        for (unsigned round = 0; round < 5; round++) {
                while (ask(0, in, 10))
                        in++;
                assert_int_equal(in - out, WIRE_PAGES);
                for (unsigned i = 0; i < WIRE_PAGES / 3; i++) {
                        assert_true(wire_take(&w, UINT64_MAX, &p));
                        assert_int_equal(p.frame, out++);
                }
                assert_true(ask(0, in++, 10));
        }
        while (wire_take(&w, UINT64_MAX, &p))
                assert_int_equal(p.frame, out++);
        assert_int_equal(in, out);
}

static void test_lock(void **state)
{
        (void)state;
        wire_lock(&w);
        assert_false(wire_try_lock(&w));
        wire_unlock(&w);
        assert_true(wire_try_lock(&w));
        wire_unlock(&w);
}

/* --- threads --- */

#define THREADS 8
#define EACH    3000
#define FOR_EVER 4000000000ull           /* pages are lost */

static _Atomic uint64_t now;
static _Atomic uint32_t delivered[THREADS * EACH];
static _Atomic unsigned asked, came;
/* by node, under the lock */
static uint64_t last[2];

static void deliver(void)
{
        struct wire_page p;

        if (!wire_try_lock(&w))
                return;
        uint64_t t = atomic_load(&now);
        if (wire_take(&w, t, &p)) {
                unsigned node = p.frame % 2;
                if (p.due > t || p.due < last[node])
                        atomic_fetch_add(&delivered[p.frame], 100);
                last[node] = p.due;
                atomic_fetch_add(&delivered[p.frame], 1);
                atomic_fetch_add(&came, 1);
        }
        wire_unlock(&w);
}

static void *vcpu(void *arg)
{
        frame_t first = *(const frame_t *)arg * EACH;

        for (frame_t f = first; f < first + EACH && atomic_load(&now) < FOR_EVER;) {
                wire_lock(&w);
                bool room = ask(f % 2, f, atomic_load(&now));
                wire_unlock(&w);
                f += room;
                atomic_fetch_add(&asked, room);
                atomic_fetch_add(&now, 50);
                for (unsigned i = 0; !room || i < f % 3; i++, room = true)
                        deliver();
        }
        while (atomic_load(&came) < THREADS * EACH && atomic_load(&now) < FOR_EVER) {
                atomic_fetch_add(&now, 50);
                deliver();
                sched_yield();
        }
        return NULL;
}

static void test_threads(void **state)
{
        pthread_t t[THREADS];
        frame_t number[THREADS];

        (void)state;
        add(0, 1000, 30 * ONE);
        add(1, 300, 200 * ONE);
        for (unsigned i = 0; i < THREADS; i++) {
                number[i] = i;
                assert_int_equal(pthread_create(&t[i], NULL, vcpu, &number[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(t[i], NULL);
        for (unsigned f = 0; f < THREADS * EACH; f++)
                assert_int_equal(delivered[f], 1);
        assert_int_equal(asked, THREADS * EACH);
        assert_int_equal(w.next, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_parts_of_ticks),
                cmocka_unit_test(test_idle),
                cmocka_unit_test(test_bytes),
                cmocka_unit_test_setup(test_in_order, setup),
                cmocka_unit_test_setup(test_nodes, setup),
                cmocka_unit_test_setup(test_full, setup),
                cmocka_unit_test_setup(test_lock, setup),
                cmocka_unit_test_setup(test_threads, setup),
        };
        cmocka_set_message_output(CM_OUTPUT_TAP);
        return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
