/*
 * Counters of the vCPUs: faults and their latencies, evictions, exits. Printed for --stats.
 */
#include <stdio.h>
#include <string.h>
#include "stats/histogram.h"
#include "stats/stats.h"
#include "vm/counters.h"

/* Kinds that abi.h adds later and that have no name here are printed by number. */
static const char *const fault_names[FAULT_KINDS] = {
        [FAULT_ZERO] = "zero",     [FAULT_FILE] = "file", [FAULT_FETCH] = "fetch",
        [FAULT_SHARED] = "shared", [FAULT_WAIT] = "wait", [FAULT_SPURIOUS] = "spurious",
};
static const char *const counter_names[CNT_COUNT] = {
        [CNT_FETCHED] = "fetched",
        [CNT_EVICTED_CLEAN] = "evicted_clean",
        [CNT_EVICTED_DIRTY] = "evicted_dirty",
        [CNT_WRITEBACK] = "writeback",
        [CNT_REFILLS] = "refills",
        [CNT_DOORBELLS] = "doorbells",
        [CNT_IO_DOORBELLS] = "io_doorbells",
        [CNT_FRAME_WAITS] = "frame_waits",
        [CNT_DIRECT_RECLAIM] = "direct_reclaim",
        [CNT_FLUSHES] = "flushes",
        [CNT_KICKS] = "kicks",
        [CNT_SYSCALLS_LOCAL] = "syscalls_local",
        [CNT_SYSCALLS_FORWARDED] = "syscalls_forwarded",
        [CNT_SCANNED] = "scanned",
        [CNT_EXITS] = "exits",
};
static const char *const exit_names[EXIT_OPS] = {
        [EXIT_READY] = "ready",
        [EXIT_SYSCALL] = "syscall",
        [EXIT_UPCALL_DONE] = "upcall_done",
        [EXIT_SIGNAL] = "signal",
        [EXIT_BUG] = "bug",
        [EXIT_LOG] = "log",
        [EXIT_FILE_READ] = "file_read",
        [EXIT_FILE_MAP] = "file_map",
        [EXIT_ANON_SHARED] = "anon_shared",
        [EXIT_SHM_ATTACH] = "shm_attach",
        [EXIT_SHARED_AGAIN] = "shared_again",
        [EXIT_FILE_REF] = "file_ref",
        [EXIT_SHARED_UNMAP] = "shared_unmap",
        [EXIT_SHARED_CHECK] = "shared_check",
        [EXIT_ARENA_COPY] = "arena_copy",
        [EXIT_MSYNC] = "msync",
        [EXIT_MINCORE] = "mincore",
        [EXIT_GROW_POOL] = "grow_pool",
        [EXIT_LEASE] = "lease",
        [EXIT_NO_MEMORY] = "no_memory",
        [EXIT_SLOTS_RELEASE] = "slots_release",
        [EXIT_WAIT_FRAMES] = "wait_frames",
        [EXIT_WAKE_FRAMES] = "wake_frames",
        [EXIT_SERVICE_SLEEP] = "service_sleep",
        [EXIT_SERVICE_WAKE] = "service_wake",
        [EXIT_WAIT_PTE] = "wait_pte",
        [EXIT_WAKE_PTE] = "wake_pte",
        [EXIT_KICK] = "kick",
        [EXIT_YIELD] = "yield",
        [EXIT_TIME] = "time",
        [EXIT_EVENT] = "event",
        [EXIT_PAUSE] = "pause",
};

const char *counters_exit_name(unsigned op)
{
        return op < EXIT_OPS && exit_names[op] ? exit_names[op] : "none";
}

struct totals {
        struct vcpu_stats s;            /* hist unused */
        uint64_t hist[FAULT_KINDS - 1][HIST_BUCKETS];
};

static void add_up(struct totals *t)
{
        memset(t, 0, sizeof(*t));
        for (unsigned n = 0; n < CONTROL->nvcpus; n++) {
                const struct vcpu_stats *v = vcpu_stats(vcpu_block(n));
                for (unsigned i = 0; i < FAULT_KINDS; i++) {
                        t->s.faults[i] += v->faults[i];
                        t->s.fault_exits[i] += v->fault_exits[i];
                }
                for (unsigned i = 0; i < CNT_COUNT; i++)
                        t->s.counter[i] += v->counter[i];
                for (unsigned i = 0; i < EXIT_OPS; i++)
                        t->s.exits[i] += v->exits[i];
                for (unsigned i = 0; i < FAULT_KINDS - 1; i++)
                        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                                t->hist[i][b] += v->hist[i][b];
        }
}

static void print_latencies(FILE *f, const struct totals *t)
{
        static const struct { const char *name; uint64_t per_million;
        } points[] = {
                { "p50", 500000 },   { "p90", 900000 },  { "p99", 990000 },
                { "p99.9", 999000 }, { "max", 1000000 },
        };
        const uint64_t tsc_khz = CONTROL->tsc_khz;      /* 0: unknown */
        char group[64];

        for (unsigned i = 0; tsc_khz && i < FAULT_KINDS - 1; i++) {
                if (!histogram_percentile(t->hist[i], 1000000))
                        continue;
                snprintf(group, sizeof(group), "latency_ns.%s", fault_names[i]);
                for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
                        uint64_t ticks = histogram_percentile(t->hist[i], points[p].per_million);
                        stats_line(f, group, points[p].name,
                                   (uint64_t)((__uint128_t)ticks * 1000000 / tsc_khz));
                }
        }
}

void counters_stats(FILE *f)
{
        /* 13 KiB: too much for the small stack of a signal handler or a thread */
        static struct totals t;
        uint64_t total = 0, evicted, fault_exits = 0;

        add_up(&t);
        stats_line(f, "", "privilege", CONTROL->level);
        stats_line(f, "", "vcpus", CONTROL->nvcpus);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                total += t.s.faults[i];
        stats_line(f, "faults", "total", total);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                stats_numbered(f, "faults", fault_names[i], i, t.s.faults[i]);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                fault_exits += t.s.fault_exits[i];
        stats_line(f, "fault_exits", "total", fault_exits);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                stats_numbered(f, "fault_exits", fault_names[i], i, t.s.fault_exits[i]);
        print_latencies(f, &t);

        for (unsigned i = 0; i < CNT_COUNT; i++)
                stats_numbered(f, "count", counter_names[i], i, t.s.counter[i]);
        evicted = t.s.counter[CNT_EVICTED_CLEAN] + t.s.counter[CNT_EVICTED_DIRTY];
        stats_line(f, "", "evicted", evicted);
        fprintf(f, "doorbells_per_64_evictions %.2f\n",
                evicted ? 64.0 * (double)t.s.counter[CNT_DOORBELLS] / (double)evicted : 0.0);

        total = 0;
        for (unsigned i = 0; i < EXIT_OPS; i++)
                total += t.s.exits[i];
        stats_line(f, "exits", "total", total);
        for (unsigned i = 0; i < EXIT_OPS; i++)
                if (t.s.exits[i])
                        stats_numbered(f, "exits", exit_names[i], i, t.s.exits[i]);
}
