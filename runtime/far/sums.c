/*
 * See sums.h.  All stores and loads are relaxed: see struct slab_map for the sums of pages, and the
 * invariant in sums.h for those of pieces.
 */
#include "far/sums.h"
#include "piece_sums.h"

static struct piece_sums table;
static far_sum_fn *table_of;            /* whose table it is */

static uint32_t sum_zeroes(uint32_t begun)
{
        static const char zeroes[PIECE_SIZE];

        return table_of(begun, zeroes, PIECE_SIZE);
}

static void have_table(const struct sums *s)
{
        if (table_of)
                return;
        table_of = s->sum;
        piece_sums_make(&table, sum_zeroes);
}

/* Sets piece[PIECES] and returns the sum of all. */
static uint32_t sum_pieces(const struct sums *s, uint64_t slot, const char *page, uint32_t *piece)
{
        have_table(s);
        for (unsigned i = 0; i < PIECES; i++)
                piece[i] = s->sum(0, page + i * PIECE_SIZE, PIECE_SIZE);
        return piece_sums_join(&table, piece_sums_seed(slot), piece, PIECES);
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

        have_table(s);
        for (unsigned i = 0; i < PIECES; i++)
                piece[i] = atomic_load_explicit(&from->sum[i], memory_order_relaxed);
        return piece_sums_join(&table, piece_sums_seed(slot), piece, PIECES) == page_sum(s, slot);
}

void sums_store(const struct sums *s, uint64_t slot, const void *page, bool pieces)
{
        uint32_t piece[PIECES], sum;

        if (pieces) {
                sum = sum_pieces(s, slot, page, piece);
                store_pieces(s, slot, piece);
        } else {
                sum = s->sum(piece_sums_seed(slot), page, PAGE_SIZE);
        }
        atomic_store_explicit(slot_sum(s->units, slot), sum, memory_order_relaxed);
}

bool sums_fit(const struct sums *s, uint64_t slot, const void *page)
{
        return s->sum(piece_sums_seed(slot), page, PAGE_SIZE) == page_sum(s, slot);
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
        e->sum = piece_sums_join(&table, 0, piece + first, n);
        return true;
}

bool sums_part_fits(const struct sums *s, const struct sum_of_part *e, const void *page)
{
        return s->sum(0, (const char *)page + e->offset, e->len) == e->sum;
}
