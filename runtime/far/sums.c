/*
 * See sums.h.  All stores and loads are relaxed: see struct slab_map for the sums of pages, and the
 * invariant in sums.h for those of pieces.
 */
#include "far/sums.h"

/* The sum that PIECE_SIZE bytes of zeroes make of a begun sum: by each of its four bytes, to be
 * added (xor). */
static uint32_t by_zeroes[4][256];

/* A sum is linear, so the sums of 32 single bits give the whole table. */
static void make_table(far_sum_fn *sum)
{
        static const char zeroes[PIECE_SIZE];

        for (unsigned bit = 0; bit < 32; bit++)
                by_zeroes[bit / 8][1u << bit % 8] = sum(1u << bit, zeroes, PIECE_SIZE);
        for (unsigned i = 0; i < 4; i++)
                for (unsigned b = 1; b < 256; b++)      /* its lowest bit, and the others */
                        by_zeroes[i][b] = by_zeroes[i][b & (b - 1)] ^ by_zeroes[i][b & -b];
}

/* The sum of n pieces from their own, begun with `begun`. */
static uint32_t join(uint32_t begun, const uint32_t *piece, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                begun = by_zeroes[0][begun & 0xff] ^ by_zeroes[1][begun >> 8 & 0xff] ^
                        by_zeroes[2][begun >> 16 & 0xff] ^ by_zeroes[3][begun >> 24] ^ piece[i];
        return begun;
}

/* Slots have 30 bits.  The complement: else a page of zeroes in slot 0 would have the sum 0, as a
 * slot that was never written. */
static uint32_t seed(uint64_t slot) { return ~(uint32_t)slot; }

/* Sets piece[PIECES] and returns the sum of all. */
static uint32_t sum_pieces(const struct sums *s, uint64_t slot, const char *page, uint32_t *piece)
{
        if (!by_zeroes[0][1])
                make_table(s->sum);
        for (unsigned i = 0; i < PIECES; i++)
                piece[i] = s->sum(0, page + i * PIECE_SIZE, PIECE_SIZE);
        return join(seed(slot), piece, PIECES);
}

static uint32_t page_sum(const struct sums *s, uint64_t slot)
{
        return atomic_load_explicit(slot_sum(s->units, slot), memory_order_relaxed);
}

static void store_pieces(const struct sums *s, uint64_t slot, const uint32_t *piece)
{
        struct slot_pieces *to = slot_pieces(s->pieces, slot);

        for (unsigned i = 0; i < PIECES; i++)
                atomic_store_explicit(&to->sum[i], piece[i], memory_order_relaxed);
}

/* Sets piece[PIECES].  True: they make the sum of the page. */
static bool load_pieces(const struct sums *s, uint64_t slot, uint32_t *piece)
{
        struct slot_pieces *from = slot_pieces(s->pieces, slot);

        if (!by_zeroes[0][1])
                make_table(s->sum);
        for (unsigned i = 0; i < PIECES; i++)
                piece[i] = atomic_load_explicit(&from->sum[i], memory_order_relaxed);
        return join(seed(slot), piece, PIECES) == page_sum(s, slot);
}

void sums_store(const struct sums *s, uint64_t slot, const void *page, bool pieces)
{
        uint32_t piece[PIECES], sum;

        if (pieces) {
                sum = sum_pieces(s, slot, page, piece);
                store_pieces(s, slot, piece);
        } else {
                sum = s->sum(seed(slot), page, PAGE_SIZE);
        }
        atomic_store_explicit(slot_sum(s->units, slot), sum, memory_order_relaxed);
}

bool sums_fit(const struct sums *s, uint64_t slot, const void *page)
{
        return s->sum(seed(slot), page, PAGE_SIZE) == page_sum(s, slot);
}

bool sums_learn(const struct sums *s, uint64_t slot, const void *page)
{
        uint32_t piece[PIECES];
        bool right = sum_pieces(s, slot, page, piece) == page_sum(s, slot);

        if (right)
                store_pieces(s, slot, piece);
        return right;
}

bool sums_of_part(const struct sums *s, uint64_t slot, uint32_t offset, uint32_t len,
                  struct sum_of_part *e)
{
        unsigned first = offset / PIECE_SIZE, n = (offset + len - 1) / PIECE_SIZE + 1 - first;
        uint32_t piece[PIECES];

        if (n == PIECES || !load_pieces(s, slot, piece))
                return false;
        e->offset = (uint16_t)(first * PIECE_SIZE);
        e->len = (uint16_t)(n * PIECE_SIZE);
        e->sum = join(0, piece + first, n);
        return true;
}

bool sums_part_fits(const struct sums *s, const struct sum_of_part *e, const void *page)
{
        return s->sum(0, (const char *)page + e->offset, e->len) == e->sum;
}
