/*
 * How the sum of a page comes from the sums of its pieces, for kern and the host: a sum is a CRC,
 * which is linear.
 */
#ifndef VMRUN_PIECE_SUMS_H
#define VMRUN_PIECE_SUMS_H

#include <stddef.h>
#include <stdint.h>
#include "layout.h"

#define PIECE_SIZE 512u
#define PIECES     (PAGE_SIZE / PIECE_SIZE)

/* What PIECE_SIZE bytes of zeroes make of a begun sum: by each of its four bytes, to be added
 * (xor). */
struct piece_sums { uint32_t by_zeroes[4][256]; };

/* sum(begun, n): of PIECE_SIZE zeroes.  A sum is linear, so the sums of 32 single bits give the
 * whole table. */
static inline void piece_sums_make(struct piece_sums *t, uint32_t (*sum)(uint32_t begun))
{
        for (unsigned bit = 0; bit < 32; bit++)
                t->by_zeroes[bit / 8][1u << bit % 8] = sum(1u << bit);
        for (unsigned i = 0; i < 4; i++)
                for (unsigned b = 1; b < 256; b++)      /* its lowest bit, and the others */
                        t->by_zeroes[i][b] =
                                t->by_zeroes[i][b & (b - 1)] ^ t->by_zeroes[i][b & -b];
}

/* The sum of n pieces from their own, begun with `begun`. */
static inline uint32_t piece_sums_join(const struct piece_sums *t, uint32_t begun,
                                       const uint32_t *piece, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                begun = t->by_zeroes[0][begun & 0xff] ^ t->by_zeroes[1][begun >> 8 & 0xff] ^
                        t->by_zeroes[2][begun >> 16 & 0xff] ^ t->by_zeroes[3][begun >> 24] ^
                        piece[i];
        return begun;
}

/* With what the sum of a slot's page begins.  Slots have 30 bits.  The complement: else a page of
 * zeroes in slot 0 would have the sum 0, as a slot that was never written. */
static inline uint32_t piece_sums_seed(uint64_t slot) { return ~(uint32_t)slot; }

#endif
