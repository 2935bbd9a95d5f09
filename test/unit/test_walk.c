/*
 * The walk over slots that a process holds, and its rate (runtime/far/walk.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <cmocka.h>
#include <guest_ram.h>
#include "include/allocator.h"
#include "vm/vm.h"

#define SELF  5
#define OTHER 6

static char *units;
static struct { uint32_t tree_number, nslabs; struct slab slabs[4]; } control = {
        .tree_number = SELF,
        .nslabs = 3,
        .slabs = { { .kind = SLAB_REMOTE, .pages = 1000 },
                   { .kind = SLAB_MEMORY, .pages = SLAB_PAGES },
                   { .kind = SLAB_REMOTE, .pages = SLAB_PAGES } },
};

#undef CONTROL
#define CONTROL (&control)
#undef TREE_WINDOW
#define TREE_WINDOW units

#include "far/walk.c"

/* The chunk is this process's, and the slot says so. */
static uint64_t put(uint32_t slab, uint32_t page, uint16_t word)
{
        struct slab_map *map = tree_map(units, slab);

        chunk_touch(map, SELF, page >> CHUNK_SHIFT);
        map->word[page] = word;
        return (uint64_t)slab << SLAB_SHIFT | page;
}

static void finds_what_is_held(void **state)
{
        uint64_t found[8], at = 0, slot;
        unsigned n = 0, steps = 0;

        (void)state;
        const uint64_t held[] = {
                put(0, 0, SLOT_OWNED | SELF),
                put(0, 511, SLOT_OWNED | SLOT_DUE | SELF),
                put(0, 999, SLOT_SHARED),
                put(2, 3 * CHUNK_PAGES, SLOT_CHECK | OTHER),
                put(2, SLAB_PAGES - 1, SLOT_OWNED | SELF),
        };
        put(0, 1, SLOT_FREE);
        put(0, 2, SLOT_DUE);                            /* retired */
        put(0, 3, SLOT_OWNED | OTHER);
        put(1, 7, SLOT_OWNED | SELF);                   /* of memory */
        tree_map(units, 2)->word[2 * CHUNK_PAGES] = SLOT_OWNED | SELF;  /* a chunk never touched */
        do {
                unsigned left = 100;
                slot = walk_next(&at, &left);
                assert_in_range(left, 0, 100);
                if (slot < WALK_END) {
                        assert_true(n < 8);
                        found[n++] = slot;
                }
                steps++;
        } while (slot != WALK_END);
        assert_int_equal(n, sizeof(held) / sizeof(held[0]));
        for (unsigned i = 0; i < n; i++)
                assert_int_equal(found[i], held[i]);
        /* 5 touched chunks, of which the second is cut short: 489 + 4 * 512 slots */
        assert_true(steps > 20);
}

/* How many pages may be moved until `ms`, if a process asks each `every` ms for `run` at a time. */
static unsigned moved_in_runs(uint64_t most, unsigned every, unsigned ms, unsigned run)
{
        rate_t r = 0;
        unsigned n = 0;

        for (int64_t now = 1000000; now <= 1000000 + (int64_t)ms; now += every)
                while (n < 1000000 && rate_allows(&r, most, now, run))
                        for (unsigned i = 0; i < run; i++, n++)
                                rate_take(&r, most, now);
        return n;
}

static unsigned moved(uint64_t most, unsigned every, unsigned ms)
{
        return moved_in_runs(most, every, ms, 1);
}

static void keeps_its_rate(void **state)
{
        (void)state;
        /* and 20 ms of it at the start, or one page */
        assert_in_range(moved(100 * PAGE_SIZE, 1, 10000), 1000, 1003);
        assert_in_range(moved(100 * PAGE_SIZE, 7, 10000), 1000, 1003);
        assert_in_range(moved(100, 1, 100000), 2, 4);
        assert_in_range(moved(100000 * PAGE_SIZE, 1, 10), 3000, 3000);
        /* an unused part of the rate is lost */
        assert_in_range(moved(100000 * PAGE_SIZE, 1000, 3000), 8000, 8000);
        assert_int_equal(moved(0, 1, 1), 1000000);
}

/* Also if a run is more than 20 ms of the rate: the runs after it wait for longer. */
static void keeps_its_rate_in_runs(void **state)
{
        rate_t r = 0;

        (void)state;
        assert_in_range(moved_in_runs(10000 * PAGE_SIZE, 1, 10000, 16), 99984, 100216);
        assert_in_range(moved_in_runs(100 * PAGE_SIZE, 1, 10000, 16), 1000, 1018);
        assert_true(rate_allows(&r, 1000 * PAGE_SIZE, 1000000, 16));
        for (unsigned i = 0; i < 5; i++)
                rate_take(&r, 1000 * PAGE_SIZE, 1000000);
        /* 15 are left, which is no run, but a page */
        assert_false(rate_allows(&r, 1000 * PAGE_SIZE, 1000000, 16));
        assert_true(rate_allows(&r, 1000 * PAGE_SIZE, 1000000, 1));
        assert_true(rate_allows(&r, 1000 * PAGE_SIZE, 1000001, 16));
}

/* Eleven processes copy at one rate, and each gets its part; they may begin a run together. */
static void is_shared(void **state)
{
        const uint64_t most = 10000 * PAGE_SIZE;
        unsigned n[11] = { 0 }, all = 0;
        rate_t r = 0;

        (void)state;
        for (int64_t now = 1000000; now < 1010000; now++) {
                bool may[11];
                for (unsigned i = 0; i < 11; i++)
                        may[i] = rate_allows(&r, most, now, 16);
                for (unsigned i = 0; i < 11; i++)
                        for (unsigned k = 0; may[(i + now) % 11] && k < 16; k++) {
                                if (k && !rate_allows(&r, most, now, 1))
                                        break;
                                rate_take(&r, most, now);
                                n[(i + now) % 11]++;
                        }
        }
        for (unsigned i = 0; i < 11; all += n[i++])
                assert_in_range(n[i], 8000, 10000);
        assert_in_range(all, 99990, 100220);
}

/* A process in another time namespace has another clock: no process waits for that clock. */
static void does_not_wait_for_another_clock(void **state)
{
        const int64_t year = 365 * 86400000ll;
        const uint64_t most = 1000 * PAGE_SIZE;
        rate_t r = 0;

        (void)state;
        rate_take(&r, most, 1000000 + year);
        assert_true(rate_allows(&r, most, 1000000, 16));
        for (unsigned i = 0; i < 20; i++)
                rate_take(&r, most, 1000000);
        assert_false(rate_allows(&r, most, 1000000, 1));
        assert_true(rate_allows(&r, most, 1000000 + year, 16));
        /* but each of a tree may be a page ahead */
        for (unsigned i = 0; i < 1000; i++)
                rate_take(&r, most, 1000000);
        assert_false(rate_allows(&r, most, 1000999, 1));
        assert_true(rate_allows(&r, most, 1001001, 1));
        /* nor is the rate begun again for a process that read its clock a moment ago */
        r = 0;
        for (unsigned i = 0; i < 20000; i++)
                rate_take(&r, 1000 * most, 1000000);
        assert_false(rate_allows(&r, 1000 * most, 999000, 1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(finds_what_is_held),
                cmocka_unit_test(keeps_its_rate),
                cmocka_unit_test(keeps_its_rate_in_runs),
                cmocka_unit_test(is_shared),
                cmocka_unit_test(does_not_wait_for_another_clock),
        };

        units = mmap(NULL, 4 * SLAB_MAP_SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return units == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
