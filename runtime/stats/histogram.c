#include "stats/histogram.h"

const struct histogram_point histogram_points[HISTOGRAM_POINTS] = {
        { "p50", 500000 },   { "p90", 900000 },  { "p99", 990000 },
        { "p99.9", 999000 }, { "max", 1000000 },
};

uint64_t histogram_end(unsigned bucket)
{
        return bucket + 1 < HIST_BUCKETS ? hist_low(bucket + 1) - 1 : hist_low(bucket);
}

uint64_t histogram_ns(const struct histogram *h, uint64_t ticks)
{
        return (uint64_t)((__uint128_t)ticks * 1000000 / h->tsc_khz);
}

uint64_t histogram_count(const struct histogram *h)
{
        uint64_t n = 0;

        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                n += h->bucket[b];
        return n;
}

uint64_t histogram_percentile_ns(const struct histogram *h, uint64_t per_million)
{
        uint64_t total = histogram_count(h), seen = 0;
        /* The smallest rank that covers the share, at least 1: with three samples p50 is the
         * second, p99 the third. */
        uint64_t rank = (uint64_t)(((__uint128_t)total * per_million + 999999) / 1000000);

        for (unsigned b = 0; total && b < HIST_BUCKETS; b++) {
                seen += h->bucket[b];
                if (seen && seen >= rank)
                        return histogram_ns(h, histogram_end(b));
        }
        return 0;
}

uint64_t histogram_mean_ns(const struct histogram *h)
{
        uint64_t n = histogram_count(h);

        return n ? histogram_ns(h, h->ticks / n) : 0;
}

uint64_t histogram_sum_ns(const struct histogram *h) { return histogram_ns(h, h->ticks); }

uint64_t histogram_row_end(unsigned row)
{
        static const unsigned char step[] = { 1, 2, 5 };
        uint64_t end = step[row % 3];

        for (unsigned i = 0; i < row / 3; i++)
                end *= 10;
        return end;
}
