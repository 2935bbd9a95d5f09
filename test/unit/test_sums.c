/*
 * The sums of pages and of their pieces (runtime/far/sums.c): bytes that are right fit, any bit
 * that is wrong does not, and sums of pieces that are not this page's are not believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "far/sums.h"

#define SLABS  2
#define SLOT   ((1ull << SLAB_SHIFT) + 77)      /* in the second slab */
#define BESIDE (SLOT + 1)

static struct sums s;
static char page[PAGE_SIZE], older[PAGE_SIZE];
static uint64_t turn = 1;

static uint32_t any(uint32_t n)
{
        turn = turn * 6364136223846793005 + 1442695040888963407;
        return (uint32_t)((turn >> 33) % n);
}

static void fill(char *p)
{
        for (unsigned i = 0; i < PAGE_SIZE; i++)
                p[i] = (char)any(256);
}

static void *room(size_t n)
{
        void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_true(p != MAP_FAILED);
        return p;
}

static int set_up(void **state)
{
        (void)state;
        s = (struct sums){ room(tree_units_size(SLABS)), room(SLABS * SLAB_PIECES_SIZE), far_sum };
        fill(page);
        fill(older);
        return 0;
}

static int take_down(void **state)
{
        (void)state;
        munmap(s.units, tree_units_size(SLABS));
        munmap(s.pieces, SLABS * SLAB_PIECES_SIZE);
        return 0;
}

static uint32_t page_sum(uint64_t slot) { return *slot_sum(s.units, slot); }
static struct slot_pieces *pieces_of(uint64_t slot) { return slot_pieces(s.pieces, slot); }

static bool has_pieces(uint64_t slot)
{
        struct sum_of_part e;

        return sums_of_part(&s, slot, 0, 1, &e);
}

/* The slot has sums of pieces, and these fit. */
static bool part_fits(uint64_t slot, uint32_t offset, uint32_t len)
{
        struct sum_of_part e;

        assert_true(sums_of_part(&s, slot, offset, len, &e));
        return sums_part_fits(&s, &e, page);
}

/* RFC 3720, appendix B.4 */
static void a_sum_is_crc32c(void **state)
{
        char zeroes[32] = { 0 };

        (void)state;
        assert_int_equal(~far_sum(~0u, zeroes, 32), 0x8a9136aa);
        assert_int_equal(~far_sum(~0u, "123456789", 9), 0xe3069283);
}

/* One pass over the pieces gives the sum that a pass over the page gives. */
static void pieces_do_not_change_the_sum_of_a_page(void **state)
{
        (void)state;
        for (unsigned i = 0; i < 100; i++) {
                uint64_t slot = any(SLABS << SLAB_SHIFT);
                fill(page);
                sums_store(&s, slot, page, true);
                uint32_t with = page_sum(slot);
                sums_store(&s, slot, page, false);
                assert_int_equal(with, page_sum(slot));
                assert_int_equal(with, far_sum(~(uint32_t)slot, page, PAGE_SIZE));
                assert_true(sums_fit(&s, slot, page));
        }
}

static void a_page_of_another_slot_does_not_fit(void **state)
{
        (void)state;
        sums_store(&s, SLOT, page, true);
        *slot_sum(s.units, BESIDE) = page_sum(SLOT);
        *pieces_of(BESIDE) = *pieces_of(SLOT);
        assert_false(sums_fit(&s, BESIDE, page));
        assert_false(has_pieces(BESIDE));
}

/* Any bytes: the pieces that hold them, and no more. */
static void parts_are_pieces(void **state)
{
        (void)state;
        sums_store(&s, SLOT, page, true);
        for (unsigned i = 0; i < 20000; i++) {
                uint32_t offset = any(PAGE_SIZE), len = 1 + any(PAGE_SIZE - offset);
                uint32_t from = offset / PIECE_SIZE * PIECE_SIZE;
                uint32_t to = (offset + len + PIECE_SIZE - 1) / PIECE_SIZE * PIECE_SIZE;
                struct sum_of_part e;
                assert_int_equal(sums_of_part(&s, SLOT, offset, len, &e), to - from < PAGE_SIZE);
                if (to - from == PAGE_SIZE)
                        continue;
                assert_int_equal(e.offset, from);
                assert_int_equal(e.offset + e.len, to);
                assert_true(sums_part_fits(&s, &e, page));
        }
}

/* A wrong bit in the part is found.  A wrong bit outside it is left to the sum of the page. */
static void any_bit_is_found(void **state)
{
        (void)state;
        sums_store(&s, SLOT, page, true);
        for (unsigned i = 0; i < 20000; i++) {
                uint32_t offset = any(PAGE_SIZE), len = 1 + any(PAGE_SIZE - offset);
                uint32_t bit = any(PAGE_SIZE * 8), at = bit / 8;
                struct sum_of_part e;
                bool part = sums_of_part(&s, SLOT, offset, len, &e);
                page[at] ^= (char)(1 << bit % 8);
                if (part)
                        assert_int_equal(sums_part_fits(&s, &e, page),
                                         at < e.offset || at >= (uint32_t)e.offset + e.len);
                assert_false(sums_fit(&s, SLOT, page));
                assert_false(sums_learn(&s, SLOT, page));
                page[at] ^= (char)(1 << bit % 8);
        }
        assert_true(has_pieces(SLOT));
}

/* The newer page was written by a process that does not know that parts are read. */
static void pieces_of_an_older_page_are_not_believed(void **state)
{
        (void)state;
        sums_store(&s, SLOT, older, true);
        sums_store(&s, SLOT, page, false);
        assert_false(has_pieces(SLOT));
        assert_true(sums_fit(&s, SLOT, page));
        assert_false(sums_fit(&s, SLOT, older));
}

/* A process was killed after each of its stores; then the slot went to another, which stored the
 * sum of a page alone, also of the page that was there before. */
static void pieces_stored_in_part_are_not_believed(void **state)
{
        (void)state;
        for (unsigned n = 1; n < PIECES; n++)
                for (unsigned first = 0; first < 2; first++) {
                        sums_store(&s, SLOT, older, true);
                        sums_store(&s, BESIDE, page, true);
                        for (unsigned i = 0; i < n; i++)
                                pieces_of(SLOT)->sum[i] = pieces_of(BESIDE)->sum[i];
                        assert_false(has_pieces(SLOT));
                        sums_store(&s, SLOT, first ? older : page, false);
                        assert_false(has_pieces(SLOT));
                }
}

static void pieces_have_an_order(void **state)
{
        (void)state;
        for (unsigned i = 1; i < PIECES; i++) {
                sums_store(&s, SLOT, page, true);
                uint32_t was = pieces_of(SLOT)->sum[i];
                pieces_of(SLOT)->sum[i] = pieces_of(SLOT)->sum[i - 1];
                pieces_of(SLOT)->sum[i - 1] = was;
                assert_false(has_pieces(SLOT));
        }
}

static void pieces_that_nobody_stored_are_not_believed(void **state)
{
        (void)state;
        sums_store(&s, SLOT, page, false);
        assert_false(has_pieces(SLOT));
        /* The sums of pieces of zeroes are right, and so are their answers. */
        memset(page, 0, PAGE_SIZE);
        sums_store(&s, SLOT, page, false);
        assert_true(part_fits(SLOT, 5, 5));
        page[5] = 1;
        assert_false(part_fits(SLOT, 5, 5));
}

static void a_page_that_fits_teaches_its_pieces(void **state)
{
        (void)state;
        sums_store(&s, SLOT, page, false);
        assert_false(sums_learn(&s, SLOT, older));
        assert_false(has_pieces(SLOT));
        assert_true(sums_learn(&s, SLOT, page));
        assert_true(has_pieces(SLOT));
        assert_true(part_fits(SLOT, 3000, 600));
        assert_false(has_pieces(BESIDE));
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, take_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                test(a_sum_is_crc32c),
                test(pieces_do_not_change_the_sum_of_a_page),
                test(a_page_of_another_slot_does_not_fit),
                test(parts_are_pieces),
                test(any_bit_is_found),
                test(pieces_of_an_older_page_are_not_believed),
                test(pieces_stored_in_part_are_not_believed),
                test(pieces_have_an_order),
                test(pieces_that_nobody_stored_are_not_believed),
                test(a_page_that_fits_teaches_its_pieces),
        };

        return cmocka_run_group_tests_name("sums", tests, NULL, NULL);
}
