/* Shared by lookahead.c and the policies. */
#ifndef VMRUN_LOOKAHEAD_POLICY_H
#define VMRUN_LOOKAHEAD_POLICY_H

#include "pager/lookahead.h"

/* A fault, and the data to judge it by. */
struct lookahead_access {
        uint64_t page;
        enum lookahead_cause cause;
        uint32_t most;                  /* pages a batch may have */
        uint32_t history, forget;
        lookahead_used_fn *used;
        void *arg;
};

/* Each fills in *batch, which is empty before. */
void readahead_fault(struct lookahead *h, const struct lookahead_access *a,
                     struct lookahead_batch *batch);
void trend_fault(struct lookahead *h, const struct lookahead_access *a,
                 struct lookahead_batch *batch);
void auto_fault(struct lookahead *h, const struct lookahead_access *a,
                struct lookahead_batch *batch);
/* A stream of count pages begins at a->page. */
void auto_begin(struct lookahead *h, const struct lookahead_access *a, int64_t stride,
                uint64_t count, struct lookahead_batch *batch);
/* Only the first n pages of the latest batch were asked for; OUT: its marker. */
void auto_cut(struct lookahead *h, struct lookahead_batch *batch, uint32_t n);

/* Calls hit(h, page) for each page of the latest batches that was used since the last call, in the
 * order they were asked for; for the page of the fault itself too, if it was prefetched. */
void lookahead_hits(struct lookahead *h, const struct lookahead_access *a,
                    void (*hit)(struct lookahead *h, uint64_t page));
/* Notes a batch for lookahead_hits(), without the pages that are here already. */
void lookahead_note(struct lookahead *h, const struct lookahead_access *a,
                    const struct lookahead_batch *b);

static inline bool lookahead_page_valid(uint64_t page) { return page >> LOOKAHEAD_PAGE_BITS == 0; }

/* Drops the pages of a batch that lie outside the address space. */
static inline void lookahead_clip(struct lookahead_batch *b)
{
        uint64_t last = b->first + (uint64_t)b->stride * (b->count - 1);

        if (lookahead_page_valid(b->first | last))
                return;
        for (; b->count && !lookahead_page_valid(b->first); b->count--)
                b->first += (uint64_t)b->stride;
        while (b->count && !lookahead_page_valid(b->first + (uint64_t)b->stride * (b->count - 1)))
                b->count--;
}

/* The power of two that is n or next above it; n: 1 to 2^31. */
static inline uint32_t lookahead_pow2(uint32_t n)
{
        return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}

#endif
