/*
 * Latency histograms: HIST_SUB bits of linear buckets an octave (abi_stats.h has their number).
 */
#ifndef VMRUN_BUCKETS_H
#define VMRUN_BUCKETS_H

#include <stdint.h>
#include "abi_stats.h"

/* The bucket of a latency in TSC ticks. */
static inline unsigned hist_bucket(uint64_t t)
{
        if (t < (1u << HIST_SUB))
                return (unsigned)t;
        /* The octave has the number e - HIST_SUB + 1, and the leading one, which the shift leaves
         * above the sub-bucket, counts as one octave more. */
        unsigned e = 63 ^ (unsigned)__builtin_clzll(t);
        unsigned b = ((e - HIST_SUB) << HIST_SUB) + (unsigned)(t >> (e - HIST_SUB));
        return b < HIST_BUCKETS ? b : HIST_BUCKETS - 1;
}

/* The smallest latency of a bucket. */
static inline uint64_t hist_low(unsigned b)
{
        if (b < (1u << HIST_SUB))
                return b;
        unsigned e = (b >> HIST_SUB) + HIST_SUB - 1;
        return (uint64_t)((1u << HIST_SUB) | (b & ((1u << HIST_SUB) - 1))) << (e - HIST_SUB);
}

#endif
