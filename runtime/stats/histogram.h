/*
 * Percentiles of a histogram of latencies.
 */
#ifndef VMRUN_HISTOGRAM_H
#define VMRUN_HISTOGRAM_H

#include <stdint.h>

/* Upper end, in ticks, of the bucket in which the part-th of a million (500000: the median) lies;
 * 0: no samples. */
uint64_t histogram_percentile(const uint64_t *hist, uint64_t per_million);

#endif
