/*
 * Recorded orders: the file (runtime/replay/order.c), the table that is made of it (table.c), and
 * how kern follows it (kern/pager/replay.c).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "pager/replay.h"
#include "replay/order.h"
#include "replay/table.h"

/* ---- the file ---- */

enum { AT_VERSION = 8, AT_FILES = 12, AT_EVENTS = 16, AT_SUM = 24, HEAD = 32 };

static void add(struct order *o, unsigned object, int64_t page)
{
        assert_int_equal(order_reserve(o, o->events + 1), 0);
        o->event[o->events++] = order_make(object, page);
        if (!o->thread)
                o->thread = calloc(1, sizeof(*o->thread));
        o->threads = 1;
        o->thread[0].events = o->events;
}

static struct order some_order(void)
{
        struct order o = { .program = strdup("/usr/bin/some") };

        assert_int_equal(order_file(&o, "/lib/one.so"), 0);
        assert_int_equal(order_file(&o, "/lib/two.so"), 1);
        assert_int_equal(order_file(&o, "/lib/one.so"), 0);
        add(&o, ORDER_LOW, 3);
        add(&o, ORDER_LOW, -200);
        add(&o, ORDER_MAPPED, -70000);
        add(&o, ORDER_STACK, -2);
        add(&o, ORDER_FILE + 1, 5);
        add(&o, ORDER_FILE, ORDER_PAGE_MAX - 1);
        add(&o, ORDER_FILE, 0);
        add(&o, ORDER_LOW, 3);
        return o;
}

static uint8_t *printed(const struct order *o, size_t *n)
{
        uint8_t *bytes;

        assert_int_equal(order_print(o, &bytes, n), 0);
        return bytes;
}

/* The bytes are changed on purpose. */
static void set_sum(uint8_t *bytes, size_t n)
{
        uint64_t h = order_sum(bytes, n);

        for (unsigned i = 0; i < 8; i++)
                bytes[AT_SUM + i] = (uint8_t)(h >> 8 * i);
}

static void refused(const uint8_t *bytes, size_t n, const char *why)
{
        uint8_t *copy = malloc(n ? n : 1);      /* so that a sanitizer sees its end */
        struct order o;
        const char *says = NULL;

        memcpy(copy, bytes, n);
        assert_int_equal(order_parse(&o, copy, n, &says), -EINVAL);
        assert_non_null(strstr(says, why));
        assert_null(o.event);
        free(copy);
}

static void test_round_trip(void **state)
{
        struct order o = some_order(), back;
        const char *why;
        size_t n;

        (void)state;
        uint8_t *bytes = printed(&o, &n);
        assert_int_equal(order_parse(&back, bytes, n, &why), 0);
        assert_string_equal(back.program, "/usr/bin/some");
        assert_int_equal(back.files, 2);
        assert_string_equal(back.file[1], "/lib/two.so");
        assert_int_equal(back.events, o.events);
        assert_memory_equal(back.event, o.event, o.events * sizeof(*o.event));
        assert_int_equal(back.threads, 1);
        assert_int_equal(back.thread[0].number, 0);
        assert_int_equal(back.thread[0].events, o.events);
        order_free(&back);
        free(bytes);

        o.events = o.threads = 0;
        bytes = printed(&o, &n);
        assert_int_equal(order_parse(&back, bytes, n, &why), 0);
        assert_int_equal(back.events, 0);
        order_free(&back);
        order_free(&o);
        free(bytes);
}

/* Cut at any place, or with any bit changed, it is refused. */
static void test_damage(void **state)
{
        struct order o = some_order();
        size_t n;
        uint8_t *bytes = printed(&o, &n);

        (void)state;
        refused(bytes, 0, "empty");
        for (size_t i = 1; i < n; i++)
                refused(bytes, i, i < 8 ? "no record" : "damaged");
        for (size_t i = 0; i < n * 8; i++) {
                bytes[i / 8] ^= (uint8_t)(1 << i % 8);
                refused(bytes, n, i < 64 ? "no record" : i < 96 ? "version" : "damaged");
                bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        }
        refused((const uint8_t *)"\177ELF, and more than a head of it", 32, "no record");
        order_free(&o);
        free(bytes);
}

/* A file with a right sum, but with a byte that no vmrun writes. */
static void test_nonsense(void **state)
{
        struct order o = some_order();
        size_t n, texts = strlen("/usr/bin/some") + 1 + 2 * (strlen("/lib/one.so") + 1);
        uint8_t *bytes = printed(&o, &n), *more = malloc(n + 1);
        const struct { size_t at; uint8_t byte; } wrong[] = {
                { AT_FILES, 3 }, { AT_FILES, 1 }, { AT_FILES + 3, 0xff },
                { AT_EVENTS, 7 }, { AT_EVENTS, 9 }, { AT_EVENTS + 4, 1 }, { AT_EVENTS + 2, 0xff },
                { HEAD, 0 }, { HEAD + texts - 1, 'x' },
                { HEAD + texts, 0x80 },                 /* the thread's number: above 1023 */
                { HEAD + texts + 1, 7 }, { HEAD + texts + 1, 9 }, { HEAD + texts + 1, 0 },
                { HEAD + texts + 2, ORDER_FILE + 2 },   /* the first event's object */
        };

        (void)state;
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                memcpy(more, bytes, n);
                more[wrong[i].at] = wrong[i].byte;
                set_sum(more, n);
                refused(more, n, "damaged");
        }
        memcpy(more, bytes, n);
        more[n] = 0;
        set_sum(more, n + 1);
        refused(more, n + 1, "damaged");        /* a byte too many */
        more[n - 1] = 0x80;
        set_sum(more, n);
        refused(more, n, "damaged");            /* a number without an end */
        order_free(&o);
        free(bytes);
        free(more);

        o = (struct order){ .program = strdup("p") };
        add(&o, ORDER_LOW, ORDER_PAGE_MAX - 1);
        add(&o, ORDER_LOW, ORDER_PAGE_MAX);     /* one further */
        bytes = printed(&o, &n);
        refused(bytes, n, "damaged");
        o.event[1] = order_make(ORDER_LOW, -ORDER_PAGE_MAX);
        free(bytes);
        bytes = printed(&o, &n);
        refused(bytes, n, "damaged");
        order_free(&o);
        free(bytes);

        o = some_order();
        o.thread[0].number = ORDER_THREADS_MAX;
        bytes = printed(&o, &n);
        refused(bytes, n, "damaged");
        free(bytes);
        o.thread[0].number = 0;
        *o.file[0] = '\0';
        bytes = printed(&o, &n);
        refused(bytes, n, "damaged");
        order_free(&o);
        free(bytes);
}

/* Events of threads, as they came, are put together by thread, each in its order. */
static void test_threads(void **state)
{
        const uint16_t by[] = { 5, 0, 1023, 5, 0, 5, 0, 0 };
        const unsigned from[] = { 1, 4, 6, 7, 0, 3, 5, 2 };
        struct order o = some_order(), plain = some_order(), back;
        const char *why;
        size_t n;

        (void)state;
        assert_int_equal(order_group(&o, by), 0);
        for (unsigned i = 0; i < 8; i++)
                assert_true(o.event[i] == plain.event[from[i]]);
        uint8_t *bytes = printed(&o, &n);
        assert_int_equal(order_parse(&back, bytes, n, &why), 0);
        assert_memory_equal(back.event, o.event, 8 * sizeof(*o.event));
        assert_int_equal(back.threads, 3);
        assert_int_equal(back.thread[1].number, 5);
        assert_int_equal(back.thread[1].events, 3);
        assert_int_equal(back.thread[2].number, 1023);
        /* numbers that do not ascend */
        back.thread[2].number = 5;
        free(bytes);
        bytes = printed(&back, &n);
        refused(bytes, n, "damaged");
        free(bytes);
        order_free(&o);
        order_free(&plain);
        order_free(&back);
}

/* ---- the table ---- */

static const struct places places = { .low = 0x1000, .mapped = 0x7ffff7fff, .stack = 0x7ffffffff };

static struct table table;
static struct replay *r;
static struct replay_stream *s;
static void *room;

static void make(const struct order *o)
{
        assert_int_equal(table_number(&table, o), 0);
        size_t n = table_size(&table);
        room = aligned_alloc(PAGE_SIZE, n);
        memset(room, 0, n);
        table_make(&table, o, &places, room);
        r = room;
        s = r->stream;
}

static int teardown(void **state)
{
        (void)state;
        table_free(&table);
        free(room);
        room = NULL;
        return 0;
}

/* Page numbers of the heap, in this order. */
static void make_heap(const unsigned *page, unsigned n)
{
        struct order o = { .events = 0 };

        for (unsigned i = 0; i < n; i++)
                add(&o, ORDER_LOW, page[i]);
        make(&o);
        order_free(&o);
}

/* Each page once. */
static void make_row(unsigned n)
{
        unsigned *page = malloc(n * sizeof(*page));

        for (unsigned i = 0; i < n; i++)
                page[i] = i * 7919 % n;         /* n is no multiple of it */
        make_heap(page, n);
        free(page);
}

static uint64_t row_page(unsigned n, unsigned event) { return places.low + event * 7919 % n; }

static void test_places(void **state)
{
        const uint64_t page[] = { 0x400, 0x1000, 0x20000, 0x7fff00000, 0x7ffff7ffe, 0x7ffff7fff,
                                  0x7fffffffe };
        const unsigned object[] = { ORDER_LOW, ORDER_LOW, ORDER_LOW, ORDER_MAPPED, ORDER_MAPPED,
                                    ORDER_STACK, ORDER_STACK };
        struct order o = { .events = 0 };

        (void)state;
        for (unsigned i = 0; i < 7; i++) {
                order_event e = place_of(&places, page[i]);
                assert_int_equal(order_object(e), object[i]);
                add(&o, order_object(e), order_page(e));
        }
        make(&o);
        for (unsigned i = 0; i < 7; i++)
                assert_true(r->addr[r->order[i]] == page[i]);
        order_free(&o);
}

/* An event that lies nowhere in this run's address space has no address. */
static void test_out_of_bounds(void **state)
{
        struct order o = { .events = 0 };

        (void)state;
        add(&o, ORDER_LOW, -0x1001);
        add(&o, ORDER_STACK, 0);
        add(&o, ORDER_LOW, ORDER_PAGE_MAX - 1);
        add(&o, ORDER_LOW, 1);
        make(&o);
        for (unsigned i = 0; i < 3; i++)
                assert_true(r->addr[r->order[i]] == 0);
        assert_true(replay_next(r, s) == 0x1001);
        assert_true(replay_next(r, s) == 0);
        order_free(&o);
}

/* Pages of files are found where the file is mapped, and where it is mapped next. */
static void test_files(void **state)
{
        struct order o = some_order();

        (void)state;
        o.event[5] = order_make(ORDER_FILE, 9);
        make(&o);
        assert_int_equal(table.pages, 7);
        assert_false(replay_at(r, s, 0x500005, true));
        table_mapped(&table, 1, 5, 1, 0x500005);
        assert_true(replay_at(r, s, 0x500005, false));
        assert_int_equal(s->cursor, 5);
        table_mapped(&table, 0, 1, 8, 0x600001);        /* page 9 is behind it, page 0 before */
        assert_true(r->addr[r->order[5]] == 0 && r->addr[r->order[6]] == 0);
        table_mapped(&table, 0, 0, 10, 0x600000);
        assert_true(r->addr[r->order[5]] == 0x600009 && r->addr[r->order[6]] == 0x600000);
        assert_true(r->addr[r->order[4]] == 0x500005);          /* of the other file */
        table_mapped(&table, 0, 0, 10, 0x700000);
        assert_false(replay_at(r, s, 0x600009, true));
        assert_true(replay_at(r, s, 0x700009, true));
        assert_int_equal(s->cursor, 6);
        order_free(&o);
}

/* However often files move, the table does not overflow, and a search ends. */
static void test_many_moves(void **state)
{
        struct order o = some_order();

        (void)state;
        make(&o);
        for (uint64_t at = 1; at < 5000; at++)
                table_mapped(&table, 0, 0, 1, at << 12);
        assert_true(table.used < 1u << r->hash_bits);
        assert_false(replay_at(r, s, 0x123456, false));
        order_free(&o);
}

/* ---- following ---- */

#define ROW 2000

static void test_follows(void **state)
{
        (void)state;
        make_row(ROW);
        assert_false(replay_at(r, s, places.low + ROW, false));    /* no page of the order */
        assert_true(replay_at(r, s, row_page(ROW, 0), false));
        for (unsigned i = 1; i <= REPLAY_AHEAD; i++)
                assert_true(replay_next(r, s) == row_page(ROW, i));
        assert_true(replay_next(r, s) == 0);
        /* further on, only the pages that were not named yet */
        assert_true(replay_at(r, s, row_page(ROW, 9), true));
        assert_int_equal(s->cursor, 10);
        assert_true(replay_next(r, s) == row_page(ROW, REPLAY_AHEAD + 1));
}

static void test_end(void **state)
{
        unsigned n = 0;

        (void)state;
        make_row(50);
        assert_true(replay_at(r, s, row_page(50, 20), false));
        while (replay_next(r, s))
                n++;
        assert_int_equal(n, 29);
        assert_true(replay_at(r, s, row_page(50, 49), true));
        assert_true(replay_next(r, s) == 0);
}

/* A page that was not asked for moves the cursor by at most REPLAY_NEAR.  An asked page moves it as
 * far as pages were asked for. */
static void test_steps(void **state)
{
        (void)state;
        make_row(ROW);
        assert_false(replay_at(r, s, row_page(ROW, REPLAY_NEAR), false));
        assert_true(replay_at(r, s, row_page(ROW, REPLAY_NEAR - 1), false));
        assert_int_equal(s->cursor, REPLAY_NEAR);
        for (unsigned i = 0; i < 100; i++)
                replay_next(r, s);
        assert_false(replay_at(r, s, row_page(ROW, s->cursor + 99), false));
        assert_true(replay_at(r, s, row_page(ROW, s->cursor + 99), true));
        assert_int_equal(s->cursor, REPLAY_NEAR + 100);
}

/* A page that is a little behind is known, and moves nothing. */
static void test_behind(void **state)
{
        (void)state;
        make_row(ROW);
        assert_true(replay_at(r, s, row_page(ROW, 31), false));
        assert_true(replay_at(r, s, row_page(ROW, 62), false));
        assert_true(replay_at(r, s, row_page(ROW, 63 - REPLAY_NEAR), false));
        assert_int_equal(s->cursor, 63);
        assert_false(replay_at(r, s, row_page(ROW, 63 - REPLAY_NEAR - 1), false));
        assert_int_equal(s->cursor, 63);
}

/* Faults that agree on another place move the cursor there: forwards and back. */
static void test_agreement(void **state)
{
        (void)state;
        make_row(ROW);
        for (unsigned i = 0; i < REPLAY_AGREE; i++)
                assert_false(replay_at(r, s, row_page(ROW, 1000 + i * REPLAY_NEAR), false));
        assert_true(replay_at(r, s, row_page(ROW, 1000 + REPLAY_AGREE * REPLAY_NEAR), false));
        unsigned at = 1001 + REPLAY_AGREE * REPLAY_NEAR;
        assert_int_equal(s->cursor, at);
        assert_true(replay_next(r, s) == row_page(ROW, at));       /* from there on */
        for (unsigned i = 0; i < REPLAY_AGREE; i++)
                assert_false(replay_at(r, s, row_page(ROW, 100 + 3 * i), false));
        assert_true(replay_at(r, s, row_page(ROW, 130), false));
        assert_int_equal(s->cursor, 131);
        assert_true(replay_next(r, s) == row_page(ROW, 131));
}

/* Faults all over the order move nothing, and faults among them that agree are heard. */
static void test_scattered(void **state)
{
        (void)state;
        make_row(ROW);
        for (unsigned i = 0; i < 1000; i++)
                replay_at(r, s, row_page(ROW, 100 + i * 773 % (ROW - 100)), false);
        assert_int_equal(s->cursor, 0);
        bool moved = false;
        for (unsigned i = 0; i < 20 && !moved; i++)
                moved = replay_at(r, s, row_page(ROW, 500 + i), false);
        assert_true(moved);
        assert_in_range(s->cursor, 504, 520);
}

/* Of several events of a page the nearest counts. */
static void test_nearest(void **state)
{
        unsigned page[300];

        (void)state;
        for (unsigned i = 0; i < 300; i++)
                page[i] = i % 30 ? i : 7;       /* page 7 at 7, and at each thirtieth */
        make_heap(page, 300);
        assert_true(replay_at(r, s, places.low + 25, false));
        assert_true(replay_at(r, s, places.low + 55, false));
        assert_int_equal(s->cursor, 56);
        assert_true(replay_at(r, s, places.low + 7, false));
        assert_int_equal(s->cursor, 61);
        assert_true(replay_at(r, s, places.low + 7, false));       /* 0 behind, 29 ahead */
        assert_int_equal(s->cursor, 61);
}

/* Each vCPU has a stream of its own, in which it finds pages of others' too. */
static void test_streams(void **state)
{
        struct order o = { .events = 0 };
        uint16_t by[600];

        (void)state;
        for (unsigned i = 0; i < 600; i++) {
                add(&o, ORDER_LOW, i % 3 ? 1000 + i : i % 150);
                by[i] = i % 2 * 3;
        }
        assert_int_equal(order_group(&o, by), 0);
        make(&o);
        assert_int_equal(r->streams, 4);
        struct replay_stream *last = &r->stream[3];
        assert_true(replay_at(r, last, places.low + 1001, false));
        assert_true(replay_next(r, last) == places.low + 3);
        assert_true(replay_at(r, s, places.low, false));
        assert_true(replay_next(r, s) == places.low + 1002);
        assert_false(replay_at(r, s, places.low + 1007, false));        /* of the other */
        assert_int_equal(last->begin, 300);
        s->cursor = s->ahead = 299;
        assert_false(replay_at(r, s, places.low + 1001, false));        /* 300 */
        last->cursor = 300;
        assert_false(replay_at(r, last, places.low + 1598, false));     /* 299 */
        assert_false(replay_at(r, &r->stream[1], places.low + 1001, false));
        assert_true(replay_next(r, &r->stream[1]) == 0);
        while (replay_next(r, s))
                s->cursor = s->ahead;
        assert_int_equal(s->ahead, 300);
        assert_true(replay_at(r, s, places.low + 1598, false));         /* the last of this one */
        assert_true(replay_next(r, s) == 0);
        order_free(&o);
}

/* A table that a stray store of the program has changed names nonsense, and does no harm. */
static void test_stray_stores(void **state)
{
        (void)state;
        make_row(100);
        r->order[1] = 12345678;
        assert_true(replay_next(r, s) == row_page(100, 0));
        assert_true(replay_next(r, s) == row_page(100, 2));
        r->first[r->order[3] + 1] = 99999999;
        assert_false(replay_at(r, s, row_page(100, 3), false));
        r->where[r->first[r->order[5]]] = 99999999;
        assert_false(replay_at(r, s, row_page(100, 5), false));
        s->cursor = 12345678;
        replay_at(r, s, row_page(100, 8), true);
        replay_next(r, s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_damage),
                cmocka_unit_test(test_nonsense),
                cmocka_unit_test(test_threads),
                cmocka_unit_test_teardown(test_places, teardown),
                cmocka_unit_test_teardown(test_out_of_bounds, teardown),
                cmocka_unit_test_teardown(test_files, teardown),
                cmocka_unit_test_teardown(test_many_moves, teardown),
                cmocka_unit_test_teardown(test_follows, teardown),
                cmocka_unit_test_teardown(test_end, teardown),
                cmocka_unit_test_teardown(test_steps, teardown),
                cmocka_unit_test_teardown(test_behind, teardown),
                cmocka_unit_test_teardown(test_agreement, teardown),
                cmocka_unit_test_teardown(test_scattered, teardown),
                cmocka_unit_test_teardown(test_nearest, teardown),
                cmocka_unit_test_teardown(test_streams, teardown),
                cmocka_unit_test_teardown(test_stray_stores, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
