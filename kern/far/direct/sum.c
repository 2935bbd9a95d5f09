#include "allocator.h"
#include "far/direct/sum.h"
#include "piece_sums.h"

#define PIECE_QUADS (PIECE_SIZE / 8)

static struct piece_sums table;

/* CRC32 of SSE 4.2 (Intel SDM vol. 2A): it adds 8 bytes to a CRC32C. */
static inline uint64_t add(uint64_t sum, uint64_t bytes)
{
        __asm__("crc32q %1, %0" : "+r"(sum) : "rm"(bytes));
        return sum;
}

static uint32_t sum_zeroes(uint32_t begun)
{
        uint64_t sum = begun;

        for (unsigned i = 0; i < PIECE_QUADS; i++)
                sum = add(sum, 0);
        return (uint32_t)sum;
}

void direct_sum_init(void) { piece_sums_make(&table, sum_zeroes); }

/* Of n pieces, at most three.  The instruction takes three cycles, and one can begin in each. */
static inline void sum_pieces(const uint64_t *at, unsigned n, uint32_t *piece)
{
        uint64_t a = 0, b = 0, c = 0;

        for (unsigned i = 0; i < PIECE_QUADS; i++) {
                a = add(a, at[i]);
                b = add(b, at[PIECE_QUADS + i]);
                if (n > 2)
                        c = add(c, at[2 * PIECE_QUADS + i]);
        }
        piece[0] = (uint32_t)a;
        piece[1] = (uint32_t)b;
        if (n > 2)
                piece[2] = (uint32_t)c;
}

bool direct_sum_fits(uint64_t slot, const void *page)
{
        const uint64_t *at = page;
        uint32_t piece[PIECES];

        _Static_assert(PIECES == 8, "three, three and two");
        sum_pieces(at, 3, piece);
        sum_pieces(at + 3 * PIECE_QUADS, 3, piece + 3);
        sum_pieces(at + 6 * PIECE_QUADS, 2, piece + 6);
        /* Relaxed: see struct slab_map. */
        return piece_sums_join(&table, piece_sums_seed(slot), piece, PIECES) ==
               atomic_load_explicit(slot_sum((char *)TREE_WINDOW, slot), memory_order_relaxed);
}
