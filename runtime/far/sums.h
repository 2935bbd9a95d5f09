/*
 * The sums of far pages and of their pieces: where they are kept, and how they are compared.
 *
 * Each slot has the sum of its page, begun with the slot's number: so a page of another slot does
 * not fit either.  A slot may have the sums of its page's pieces too, each begun with 0, for
 * reads of a part.
 *
 * [I] Sums of pieces are believed only if together they make the sum of the page.  Since a sum is
 * linear, that can be computed without the page.  So nothing says whether a slot has them, and no
 * order is kept between their stores and other accesses: sums of an older page, sums that a killed
 * process stored in part, or sums of another slot, do not make that sum.
 *
 * Called by one thread of a process at a time.
 */
#ifndef VMRUN_FAR_SUMS_H
#define VMRUN_FAR_SUMS_H

#include <stdbool.h>
#include <stdint.h>
#include "far/sum.h"
#include "far/tree.h"

/* Where the sums are, as in struct tree; and how they are computed. */
struct sums {
        char *units;
        struct slot_pieces *pieces;
        far_sum_fn *sum;
};

/* Pieces of a page, by their bytes, and the sum that they have if they are right. */
struct sum_of_part {
        uint16_t offset, len;
        uint32_t sum;
};

/* Before the page is sent to the slot, by the slot's owner.  pieces: store their sums too; the page
 * is read once either way. */
void sums_store(const struct sums *s, uint64_t slot, const void *page, bool pieces);

/* The rest is for a process that holds the slot and has learnt that a page is there. */

/* Is this the page? */
bool sums_fit(const struct sums *s, uint64_t slot, const void *page);
/* As sums_fit(), and stores the sums of the pieces if the page fits. */
bool sums_learn(const struct sums *s, uint64_t slot, const void *page);
/* Which pieces are to be read for the bytes [offset, offset + len).  False: the whole page is,
 * because they are all of it, or because the slot has no sums of its page's pieces. */
bool sums_of_part(const struct sums *s, uint64_t slot, uint32_t offset, uint32_t len,
                  struct sum_of_part *e /* OUT */);
/* Are these the pieces?  They are at their place in page; the rest of it is not looked at. */
bool sums_part_fits(const struct sums *s, const struct sum_of_part *e, const void *page);

#endif
