/*
 * Percentiles of the histograms that kern keeps (abi.h has the buckets).
 */
#include "common/histogram.h"
#include "stats/histogram.h"

uint64_t histogram_percentile(const uint64_t *hist, uint64_t per_million)
{
        uint64_t total = 0, seen = 0;
        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                total += hist[b];
        if (!total)
                return 0;
        /* The smallest rank that covers the share, at least 1: with three samples p50 is the
         * second, p99 the third. */
        uint64_t rank = (uint64_t)(((__uint128_t)total * per_million + 999999) / 1000000);
        for (unsigned b = 0; b < HIST_BUCKETS; b++) {
                seen += hist[b];
                if (seen && seen >= rank)
                        return b + 1 < HIST_BUCKETS ? hist_low(b + 1) - 1 : hist_low(b);
        }
        return 0;
}
