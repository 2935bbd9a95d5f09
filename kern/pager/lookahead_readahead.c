/*
 * `readahead`: the rule by which Linux reads ahead in a VMA that swaps (mm/swap_state.c of Linux
 * 6.x), of a vCPU instead of a VMA.
 *
 * The window counts the page of the fault too.  Linux cuts it at the VMA's and the page table's
 * ends; here the caller takes the pages that are remote and may be accessed.
 */
#include "pager/lookahead_policy.h"

/* Without hits, reading ahead starts where two faults are neighbours. */
static uint32_t window_of(const struct lookahead *h, uint64_t page, uint32_t most)
{
        uint32_t n;

        if (h->hits)
                n = lookahead_pow2(h->hits + 2 < 4 ? 4 : h->hits + 2);
        else
                n = h->last1 && (page == h->last1 || page + 2 == h->last1) ? 2 : 1;
        if (n < h->window / 2)
                n = h->window / 2;
        return n < most ? n : most;
}

static void hit(struct lookahead *h, uint64_t page)
{
        if (h->hits < LOOKAHEAD_MOST)
                h->hits++;
        h->last1 = page + 1;
}

void readahead_fault(struct lookahead *h, const struct lookahead_access *a,
                     struct lookahead_batch *batch)
{
        lookahead_hits(h, a, hit);
        if (a->cause != LOOKAHEAD_MISS)
                return;
        uint32_t n = window_of(h, a->page, a->most);
        uint64_t last1 = h->last1;
        h->last1 = a->page + 1;
        h->window = n;
        h->hits = 0;
        if (n == 1)
                return;
        batch->stride = 1;
        batch->count = n - 1;
        batch->first = a->page + 1;
        if (a->page + 2 == last1) {
                batch->stride = -1;
                batch->first = a->page - 1;
        /* around the page; the caller finds the page itself under way */
        } else if (a->page != last1 || last1 == 0) {
                batch->count = n;
                batch->first = a->page - (n - 1) / 2;
        }
        lookahead_clip(batch);
        lookahead_note(h, a, batch);
}
