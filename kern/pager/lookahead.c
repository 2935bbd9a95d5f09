/* The choice of a policy. */
#include "pager/lookahead_policy.h"

void lookahead_fault(struct lookahead *h, const struct lookahead_rule *rule, uint64_t page,
                     enum lookahead_cause cause, lookahead_used_fn *used, void *arg,
                     struct lookahead_batch *batch)
{
        struct lookahead_access a = {
                .page = page,
                .cause = cause,
                .most = rule->window < LOOKAHEAD_MOST ? rule->window : LOOKAHEAD_MOST,
                .history = rule->history < LOOKAHEAD_HISTORY ? rule->history : LOOKAHEAD_HISTORY,
                .forget = rule->forget,
                .used = used,
                .arg = arg,
        };

        *batch = (struct lookahead_batch){ .marker = LOOKAHEAD_NO_MARKER };
        if (!lookahead_page_valid(page) || a.most == 0)
                return;
        switch (rule->policy) {
        case LOOKAHEAD_AUTO: auto_fault(h, &a, batch); break;
        case LOOKAHEAD_TREND: trend_fault(h, &a, batch); break;
        case LOOKAHEAD_READAHEAD: readahead_fault(h, &a, batch); break;
        default: break;
        }
}

void lookahead_cut(struct lookahead *h, const struct lookahead_rule *rule,
                   struct lookahead_batch *batch, uint32_t n)
{
        if (n >= batch->count)
                return;
        if (rule->policy == LOOKAHEAD_AUTO)
                auto_cut(h, batch, n);
        else
                h->asked[LOOKAHEAD_BATCHES - 1].waiting &= (1ull << n) - 1;
        batch->count = n;
}
