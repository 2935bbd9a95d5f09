/* The count of hits, for the policies that follow from it: `readahead` and `trend`. */
#include "pager/lookahead_policy.h"

/* Where use cannot be known: a page counts as used if the fault lies beyond it in the direction of
 * its batch. */
static bool is_passed(const struct lookahead_asked *q, uint64_t page, uint64_t fault)
{
        int64_t far = (int64_t)(fault - page);
        int64_t step = q->stride;

        if (step < 0) {
                far = -far;
                step = -step;
        }
        return far > 0 && far <= step * LOOKAHEAD_MOST;
}

void lookahead_hits(struct lookahead *h, const struct lookahead_access *a,
                    void (*hit)(struct lookahead *h, uint64_t page))
{
        for (unsigned b = 0; b < LOOKAHEAD_BATCHES; b++) {
                struct lookahead_asked *q = &h->asked[b];
                for (uint64_t rest = q->waiting; rest; rest &= rest - 1) {
                        uint64_t i = (uint64_t)__builtin_ctzll(rest);
                        uint64_t page = q->first + (uint64_t)q->stride * i;
                        if (page == a->page) {  /* told below, or it is gone again */
                                q->waiting &= ~(rest & -rest);
                                continue;
                        }
                        enum lookahead_use use = a->used(a->arg, page);
                        if (use == LOOKAHEAD_HIDDEN && is_passed(q, page, a->page))
                                use = LOOKAHEAD_USED;
                        if (use == LOOKAHEAD_USED)
                                hit(h, page);
                        if (use == LOOKAHEAD_USED || use == LOOKAHEAD_OTHER)
                                q->waiting &= ~(rest & -rest);
                }
        }
        if (a->cause != LOOKAHEAD_MISS)
                hit(h, a->page);
}

void lookahead_note(struct lookahead *h, const struct lookahead_access *a,
                    const struct lookahead_batch *b)
{
        for (unsigned i = 1; i < LOOKAHEAD_BATCHES; i++)
                h->asked[i - 1] = h->asked[i];
        struct lookahead_asked *q = &h->asked[LOOKAHEAD_BATCHES - 1];
        *q = (struct lookahead_asked){ .first = b->first, .stride = b->stride };
        for (uint32_t i = 0; i < b->count; i++) {
                uint64_t page = b->first + (uint64_t)b->stride * i;
                if (page != a->page && a->used(a->arg, page) <= LOOKAHEAD_UNUSED)
                        q->waiting |= 1ull << i;
        }
}
