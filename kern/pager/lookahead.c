/* The choice of a policy. */
#include "pager/lookahead_policy.h"

static struct lookahead_access access_of(const struct lookahead_rule *rule, uint64_t page)
{
        return (struct lookahead_access){
                .page = page,
                .most = rule->window < LOOKAHEAD_MOST ? rule->window : LOOKAHEAD_MOST,
                .history = rule->history < LOOKAHEAD_HISTORY ? rule->history : LOOKAHEAD_HISTORY,
                .forget = rule->forget,
        };
}

void lookahead_fault(struct lookahead *h, const struct lookahead_rule *rule, uint64_t page,
                     enum lookahead_cause cause, lookahead_used_fn *used, void *arg,
                     struct lookahead_batch *batch)
{
        struct lookahead_access a = access_of(rule, page);

        a.cause = cause;
        a.used = used;
        a.arg = arg;
        *batch = (struct lookahead_batch){ .marker = LOOKAHEAD_NO_MARKER };
        if (!lookahead_page_valid(page) || a.most == 0)
                return;
        switch (rule->policy) {
        case LOOKAHEAD_AUTO: case LOOKAHEAD_POINTERS: auto_fault(h, &a, batch); break;
        case LOOKAHEAD_TREND: trend_fault(h, &a, batch); break;
        case LOOKAHEAD_READAHEAD: readahead_fault(h, &a, batch); break;
        default: break;
        }
}

void lookahead_stream(struct lookahead *h, const struct lookahead_rule *rule, uint64_t page,
                      int64_t stride, uint64_t count, lookahead_used_fn *used, void *arg,
                      struct lookahead_batch *batch)
{
        struct lookahead_access a = access_of(rule, page);

        a.used = used;
        a.arg = arg;
        *batch = (struct lookahead_batch){ .marker = LOOKAHEAD_NO_MARKER };
        if (!lookahead_page_valid(page) || a.most == 0 || count == 0)
                return;
        if (lookahead_has_streams(rule->policy)) {
                auto_begin(h, &a, stride, count, batch);
                return;
        }
        batch->first = page;
        batch->stride = stride;
        batch->count = count < a.most ? (uint32_t)count : a.most;
        lookahead_clip(batch);
}

void lookahead_cut(struct lookahead *h, const struct lookahead_rule *rule,
                   struct lookahead_batch *batch, uint32_t n)
{
        if (n >= batch->count)
                return;
        if (lookahead_has_streams(rule->policy))
                auto_cut(h, batch, n);
        else
                h->asked[LOOKAHEAD_BATCHES - 1].waiting &= (1ull << n) - 1;
        batch->count = n;
}
