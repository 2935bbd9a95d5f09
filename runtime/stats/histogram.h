/*
 * Percentiles, mean and sum of a histogram of latencies (common/buckets.h).
 */
#ifndef VMRUN_STATS_HISTOGRAM_H
#define VMRUN_STATS_HISTOGRAM_H

#include <stdint.h>
#include "common/buckets.h"

/* A copy.  The number of samples is the sum of the buckets, whatever other counters say. */
struct histogram {
        uint64_t bucket[HIST_BUCKETS];
        uint64_t ticks;                 /* the sum of the samples */
        uint64_t tsc_khz;               /* not 0 */
};

uint64_t histogram_count(const struct histogram *h);
/* The upper end of the bucket in which the part-th of a million (500000: the median) lies, and the
 * average; in nanoseconds, 0: no samples. */
uint64_t histogram_percentile_ns(const struct histogram *h, uint64_t per_million);
uint64_t histogram_mean_ns(const struct histogram *h);
/* The sum of all samples. */
uint64_t histogram_sum_ns(const struct histogram *h);
uint64_t histogram_ns(const struct histogram *h, uint64_t ticks);
/* The largest latency of a bucket, in ticks. */
uint64_t histogram_end(unsigned bucket);

/* Rows that are the same on all hosts end at 1, 2, 5, 10, 20 ... ns.  A bucket counts in the row in
 * which it ends, so a row may lack samples of the last eighth below its end. */
#define HISTOGRAM_ROWS 40
uint64_t histogram_row_end(unsigned row);

/* The points that are shown of each histogram. */
struct histogram_point { const char *name; uint64_t per_million; };
#define HISTOGRAM_POINTS 5
extern const struct histogram_point histogram_points[HISTOGRAM_POINTS];

#endif
