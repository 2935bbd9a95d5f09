/*
 * Latency histograms of this vCPU (abi_stats.h), for --stats.  The callers measure only if
 * control.stats_on.
 */
#ifndef VMRUN_LATENCY_H
#define VMRUN_LATENCY_H

#include "base/kern.h"
#include "common/buckets.h"

/* kind: a fault_kind below FAULT_SPURIOUS, or an enum latency. */
static inline void latency_add(unsigned kind, uint64_t ticks)
{
        struct vcpu_stats *s = stats();

        s->hist[kind][hist_bucket(ticks)]++;
        s->ticks[kind] += ticks;
}

/* Are the parts of the next fetch to be measured?  The answer stays until CNT_FETCHED moves, and
 * the fault path moves it once the fetch has begun: so the fault path and ring_read(), which tells
 * the host, agree about each fetch. */
static inline bool fetch_sampled(void)
{
        return (counters()[CNT_FETCHED] &
                atomic_load_explicit(&control.fetch_mask, memory_order_relaxed)) == 0;
}

/*
 * The parts of a sampled fetch, by this vCPU's TSC:
 *
 *   began    #PF                          began to asked   LAT_HANDLER
 *   asked    the copy or the request      asked to came    LAT_WIRE, if this vCPU copied the page
 *   came     the page is there, PRESENT   came to over     LAT_INSTALL
 *   over     the return to the program
 *
 * Of a page that a node sends, the host measures the time between: LAT_QUEUE up to the driver, and
 * LAT_WIRE (runtime/far/meter.c).
 */
static inline void latency_fetch(uint64_t began, uint64_t asked, uint64_t came, uint64_t over,
                                 bool copied)
{
        latency_add(LAT_HANDLER, asked - began);
        if (copied)
                latency_add(LAT_WIRE, came - asked);
        latency_add(LAT_INSTALL, over - came);
}

#endif
