/*
 * Statistics of a vCPU: counters and latencies, in its block.
 */
#ifndef VMRUN_ABI_STATS_H
#define VMRUN_ABI_STATS_H

#include <stdint.h>
#include "abi_exits.h"
#include "layout.h"

/* Fault kinds, as the statistics count them. */
enum fault_kind {
        FAULT_ZERO, FAULT_FILE, FAULT_FETCH, FAULT_SHARED, FAULT_WAIT, FAULT_MARKER,
        FAULT_SPURIOUS, FAULT_KINDS
};
/* Ticks within which an evicted page comes back soon. */
#define LAGS 8
enum vcpu_counter {
        CNT_FETCHED, CNT_EVICTED_CLEAN, CNT_EVICTED_DIRTY, CNT_WRITEBACK, CNT_REFILLS,
        CNT_DOORBELLS, CNT_IO_DOORBELLS, CNT_FRAME_WAITS, CNT_DIRECT_RECLAIM,
        CNT_EVICTED_PASSED,             /* of the evicted pages: streams had passed them */
        CNT_FLUSHES,
        /* Flushes of all vCPUs that began, by cause. */
        CNT_BEGUN_HAND, CNT_BEGUN_PASSED, CNT_BEGUN_RANGE, CNT_BEGUN_FORK,
        CNT_KICKS, CNT_FLUSHES_KVM,
        CNT_SYSCALLS_LOCAL, CNT_SYSCALLS_FORWARDED,
        CNT_SCANNED, CNT_SHOWN, CNT_EXITS,
        /* Pages asked for ahead; of these: used; touched while still under way; evicted unused.
         * Markers that were touched. */
        CNT_PREFETCHED, CNT_PREFETCH_HITS, CNT_PREFETCH_LATE, CNT_PREFETCH_WASTED, CNT_MARKERS,
        /* Of the pages asked for ahead: because a page points to them; because the program said
         * so. */
        CNT_POINTED, CNT_HINTED,
        CNT_GUIDED,                     /* calls of guides */
        CNT_REPLAYED,                   /* and because a recorded run needed them next */
        CNT_ZEROED_AHEAD,               /* pages filled with zeroes before they were touched */
        CNT_READ_PARTS,                 /* times that bytes of a far page were read (vmg_read) */
        /* What kern/pager/balance.h reckons with, in the order of struct returns. */
        CNT_GONE,
        CNT_GONE_COLD = CNT_GONE, CNT_GONE_HOT,
        CNT_BACK_COLD,                                  /* LAGS of them */
        CNT_BACK_HOT = CNT_BACK_COLD + LAGS,            /* likewise */
        CNT_COUNT = CNT_BACK_HOT + LAGS
};
/* Pages that the hands evicted with a stamp, and pages that came back soon, by the ticks that they
 * were away.  [0]: they left cold; [1]: hot. */
struct returns { uint32_t gone[2], back[2][LAGS]; };
/* Latencies that a vCPU measures, if control.stats_on: of each kind of fault but FAULT_SPURIOUS,
 * under the number of the kind, and the latencies below. */
enum latency {
        LAT_WRITEBACK = FAULT_SPURIOUS, /* a page to far memory, from the request to its end */
        LAT_SYSCALL,                    /* a forwarded system call */
        /* Parts of a fetch, of one in FETCH_SAMPLE, or of all (kern/base/latency.h). */
        LAT_HANDLER, LAT_QUEUE, LAT_WIRE, LAT_INSTALL,
        LATENCIES
};
#define FETCH_SAMPLE 64
/* Latency histogram: 8 buckets an octave of TSC ticks (common/buckets.h). */
#define HIST_SUB     3
#define HIST_BUCKETS (40 << HIST_SUB)

/* Written by one vCPU alone, and read by the host at any time.  All only grow, while the process
 * lives. */
struct vcpu_stats {
        uint64_t faults[FAULT_KINDS];
        uint64_t counter[CNT_COUNT];
        uint64_t exits[EXIT_OPS];       /* by op */
        /* Exits made between #PF and the return, by kind of fault. */
        uint64_t fault_exits[FAULT_KINDS];
        uint64_t ticks[LATENCIES];      /* the sum of each histogram */
        uint64_t hist[LATENCIES][HIST_BUCKETS];
};

struct vcpu;
static inline struct vcpu_stats *vcpu_stats(struct vcpu *v)
{
        return (struct vcpu_stats *)((char *)v + VCPU_STATS_OFF);
}

_Static_assert(sizeof(struct vcpu_stats) <= VCPU_STATS_SIZE, "struct vcpu_stats fits its pages");

#endif
