/*
 * Counters of the vCPUs: faults and their latencies, evictions, exits.
 */
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>
#include "abi_control.h"
#include "abi_vcpu.h"
#include "stats/stats.h"
#include "vm/counters.h"

/* Kinds that have no name here, since abi_stats.h got them later, are shown by number. */
static const char *const fault_names[FAULT_KINDS] = {
        [FAULT_ZERO] = "zero",     [FAULT_FILE] = "file", [FAULT_FETCH] = "fetch",
        [FAULT_SHARED] = "shared", [FAULT_WAIT] = "wait", [FAULT_MARKER] = "marker",
        [FAULT_SPURIOUS] = "spurious",
};

#define COUNT(name, shown, what)                                                                 \
        { .key = "count." #name, .type = STATS_COUNTER, .metric = #name, .title = shown,         \
          .help = what }
static const struct stats_kind counter_kinds[CNT_COUNT] = {
        [CNT_FETCHED] = COUNT(fetched, "pages fetched",
                              "Pages read from far memory because they were touched"),
        [CNT_EVICTED_CLEAN] = COUNT(evicted_clean, "evicted, clean",
                                    "Pages that left the cache without a write"),
        [CNT_EVICTED_DIRTY] = COUNT(evicted_dirty, "evicted, after a write",
                                    "Pages that left the cache after they were written back"),
        [CNT_WRITEBACK] = COUNT(writeback, "pages written back", "Pages written to far memory"),
        [CNT_REFILLS] = COUNT(refills, NULL,
                              "Times a vCPU took free frames from the common lists"),
        [CNT_DOORBELLS] = COUNT(doorbells, "cleaner woken", "Times the cleaner was woken"),
        [CNT_IO_DOORBELLS] = COUNT(io_doorbells, NULL, "Times the I/O thread was woken"),
        [CNT_FRAME_WAITS] = COUNT(frame_waits, "waits for a free frame",
                                  "Times a thread slept because no frame was free"),
        [CNT_DIRECT_RECLAIM] = COUNT(direct_reclaim, "evicted during faults",
                                     "Of the evicted pages, those that a faulting thread evicted"),
        [CNT_EVICTED_PASSED] = COUNT(evicted_passed, "evicted behind streams",
                                     "Of the evicted pages, those that streams had passed, or of "
                                     "low priority"),
        [CNT_GONE_COLD] = COUNT(gone_cold, NULL,
                                "Pages to far memory that the hands evicted, never hot or long "
                                "since"),
        [CNT_GONE_HOT] = COUNT(gone_hot, NULL,
                               "Pages to far memory that the hands evicted, hot until then"),
        [CNT_FLUSHES] = COUNT(flushes, "TLB flushes", "TLB flushes, one for each vCPU"),
        [CNT_BEGUN_HAND] = COUNT(flushes_hand, NULL,
                                 "Flushes of all TLBs begun for pages that the hand found unused"),
        [CNT_BEGUN_PASSED] = COUNT(flushes_passed, NULL,
                                   "Flushes of all TLBs begun for pages that streams have passed"),
        [CNT_BEGUN_RANGE] = COUNT(flushes_range, NULL,
                                  "Flushes of all TLBs begun by calls that change a range"),
        [CNT_BEGUN_FORK] = COUNT(flushes_fork, NULL, "Flushes of all TLBs begun by forks"),
        [CNT_KICKS] = COUNT(kicks, NULL, "Signals that made another vCPU flush"),
        [CNT_FLUSHES_KVM] = COUNT(flushes_kvm, NULL,
                                  "TLB flushes left to KVM, as the host did not run the vCPU"),
        [CNT_PREFETCHED] = COUNT(prefetched, "pages asked for ahead",
                                 "Pages read from far memory before they were touched"),
        [CNT_PREFETCH_HITS] = COUNT(prefetch_hits, "of these used",
                                    "Pages read ahead whose use was seen"),
        [CNT_PREFETCH_LATE] = COUNT(prefetch_late, "of these waited for",
                                    "Pages read ahead that were touched before they had arrived"),
        [CNT_PREFETCH_WASTED] = COUNT(prefetch_wasted, "of these not used",
                                      "Pages read ahead that left the cache unused"),
        [CNT_MARKERS] = COUNT(markers, NULL, "First uses that made the pager look further ahead"),
        [CNT_POINTED] = COUNT(pointed, "of these by pointers",
                              "Pages read ahead because another page points to them"),
        [CNT_HINTED] = COUNT(hinted, "of these by hints",
                             "Pages read ahead because the program said so"),
        [CNT_GUIDED] = COUNT(guided, "calls of guides",
                             "Calls of functions of the program that look ahead for it"),
        [CNT_REPLAYED] = COUNT(replayed, "of these by a record",
                               "Pages read ahead because a recorded run needed them next"),
        [CNT_ZEROED_AHEAD] = COUNT(zeroed_ahead, "pages zeroed ahead",
                                   "New pages made before they were touched"),
        [CNT_READ_PARTS] = COUNT(read_parts, "far pages read in part",
                                 "Times that the program read bytes of a page that stayed far"),
        [CNT_SYSCALLS_LOCAL] = COUNT(syscalls_local, "system calls without exit",
                                     "System calls that needed no exit of their own"),
        [CNT_SYSCALLS_FORWARDED] = COUNT(syscalls_forwarded, "system calls of the host",
                                         "System calls that the host made"),
        [CNT_SCANNED] = COUNT(scanned, NULL, "Frames that the cold hand of CLOCK met"),
        [CNT_SHOWN] = COUNT(shown, NULL, "Frames that the hot hand of CLOCK met"),
        /* exits.% has more */
        [CNT_EXITS] = { .key = "count.exits", .type = STATS_COUNTER,
                        .help = "Exits by which kern asked for something" },
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
        [EXIT_FILE_MAPPED] = "file_mapped",
        [EXIT_GROW_POOL] = "grow_pool",
        [EXIT_LEASE] = "lease",
        [EXIT_NO_MEMORY] = "no_memory",
        [EXIT_SLOTS_RELEASE] = "slots_release",
        [EXIT_DIRECT] = "direct",
        [EXIT_DIRECT_RING] = "direct_ring",
        [EXIT_WAIT_FRAMES] = "wait_frames",
        [EXIT_WAKE_FRAMES] = "wake_frames",
        [EXIT_SERVICE_SLEEP] = "service_sleep",
        [EXIT_SERVICE_WAKE] = "service_wake",
        [EXIT_STOCKS] = "stocks",
        [EXIT_WAIT_PTE] = "wait_pte",
        [EXIT_WAKE_PTE] = "wake_pte",
        [EXIT_KICK] = "kick",
        [EXIT_YIELD] = "yield",
        [EXIT_TIME] = "time",
        [EXIT_EVENT] = "event",
        [EXIT_PAUSE] = "pause",
        [EXIT_GUIDES] = "guides",
};

const char *counters_exit_name(unsigned op)
{
        return op < EXIT_OPS && exit_names[op] ? exit_names[op] : "none";
}

/* Fits no thread's small stack; one thread at a time adds statistics. */
static struct vcpu_stats total;

static uint64_t load(const uint64_t *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

/* The vCPUs count on.  Each word is written by one vCPU and only grows, so each sum does too. */
static void add_up(void)
{
        const size_t words = sizeof(total) / sizeof(uint64_t);
        uint64_t *to = (uint64_t *)&total;

        memset(&total, 0, sizeof(total));
        for (unsigned n = 0; n < CONTROL->nvcpus; n++) {
                const uint64_t *from = (const uint64_t *)vcpu_stats(vcpu_block(n));
                for (size_t i = 0; i < words; i++)
                        to[i] += load(&from[i]);
        }
}
_Static_assert(sizeof(struct vcpu_stats) % sizeof(uint64_t) == 0, "add_up() adds whole words");

static void add_named(struct stats *s, const struct stats_kind *k, const char *name, unsigned i,
                      uint64_t v)
{
        if (name)
                stats_count(s, k, name, v);
        else
                stats_numbered(s, k, i, v);
}

static uint64_t sum(const uint64_t *v, unsigned n)
{
        uint64_t all = 0;

        for (unsigned i = 0; i < n; i++)
                all += v[i];
        return all;
}

static void add_faults(struct stats *s)
{
        static const struct stats_kind all = {
                .key = "faults.total", .type = STATS_COUNTER, .title = "page faults",
                .help = "Page faults",
        }, one = {
                .key = "faults.%", .type = STATS_COUNTER, .metric = "faults", .label = "kind",
                .help = "Page faults, when they are resolved",
        }, all_exits = {
                .key = "fault_exits.total", .type = STATS_COUNTER,
                .title = "exits for faults", .help = "Exits while faults were served",
        }, one_exits = {
                .key = "fault_exits.%", .type = STATS_COUNTER, .metric = "fault_exits",
                .label = "kind", .help = "Exits while such faults were served",
        };

        stats_count(s, &all, NULL, sum(total.faults, FAULT_KINDS));
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                add_named(s, &one, fault_names[i], i, total.faults[i]);
        stats_count(s, &all_exits, NULL, sum(total.fault_exits, FAULT_KINDS));
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                add_named(s, &one_exits, fault_names[i], i, total.fault_exits[i]);
}

static void add_latencies(struct stats *s)
{
        static const struct stats_kind fault = {
                .key = "latency_ns.%", .type = STATS_LATENCY, .unit = STATS_NS,
                .metric = "fault_latency", .label = "kind", .title = "fault: %",
                .help = "Time from a fault to the return to the program",
        }, writeback = {
                .key = "writeback_ns", .type = STATS_LATENCY, .unit = STATS_NS,
                .metric = "writeback_latency", .title = "write-back of a page",
                .help = "Time from the request to write a page to when the cleaner saw its end",
        }, syscall = {
                .key = "syscall_ns", .type = STATS_LATENCY, .unit = STATS_NS,
                .metric = "syscall_latency", .title = "host's system calls",
                .help = "Time of a forwarded system call in the host, its own waits included",
        };
        const uint64_t khz = CONTROL->tsc_khz;          /* 0: unknown */

        for (unsigned i = 0; i < FAULT_SPURIOUS; i++) {
                char number[16];
                snprintf(number, sizeof(number), "%u", i);
                stats_latency(s, &fault, fault_names[i] ? fault_names[i] : number, total.hist[i],
                              total.ticks[i], khz);
        }
        stats_latency(s, &writeback, NULL, total.hist[LAT_WRITEBACK], total.ticks[LAT_WRITEBACK],
                      khz);
        stats_latency(s, &syscall, NULL, total.hist[LAT_SYSCALL], total.ticks[LAT_SYSCALL], khz);
}

static void add_counters(struct stats *s)
{
        static const struct stats_kind other = {
                .key = "count.%", .type = STATS_COUNTER, .metric = "count", .label = "number",
                .help = "Counters without a name",
        }, all = {
                .key = "evicted", .type = STATS_COUNTER,
                .help = "Pages that left the cache for others",
        }, back_cold = COUNT(back_cold, NULL, "Pages that came back soon, and had left cold"),
        back_hot = COUNT(back_hot, NULL, "Pages that came back soon, and had left hot"),
        doorbells = {
                .key = "doorbells_per_64_evictions", .type = STATS_RATIO,
                .help = "Times the cleaner was woken for 64 evictions",
        };
        uint64_t evicted = total.counter[CNT_EVICTED_CLEAN] + total.counter[CNT_EVICTED_DIRTY];

        for (unsigned i = 0; i < CNT_BACK_COLD; i++)
                if (counter_kinds[i].key)
                        stats_count(s, &counter_kinds[i], NULL, total.counter[i]);
                else
                        stats_numbered(s, &other, i, total.counter[i]);
        stats_count(s, &all, NULL, evicted);
        stats_count(s, &back_cold, NULL, sum(&total.counter[CNT_BACK_COLD], LAGS));
        stats_count(s, &back_hot, NULL, sum(&total.counter[CNT_BACK_HOT], LAGS));
        stats_ratio(s, &doorbells, 64, total.counter[CNT_DOORBELLS], evicted);
}

static void add_exits(struct stats *s)
{
        static const struct stats_kind all = {
                .key = "exits.total", .type = STATS_COUNTER, .title = "exits",
                .help = "Exits from the virtual machine",
        }, one = {
                .key = "exits.%", .type = STATS_COUNTER, .metric = "exits", .label = "op",
                .help = "Exits from the virtual machine by what was asked for",
        };

        stats_count(s, &all, NULL, sum(total.exits, EXIT_OPS));
        for (unsigned i = 0; i < EXIT_OPS; i++)
                if (total.exits[i])
                        add_named(s, &one, exit_names[i], i, total.exits[i]);
}

void counters_stats(struct stats *s)
{
        static const struct stats_kind level = {
                .key = "privilege", .type = STATS_GAUGE, .metric = "privilege_level",
                .help = "Level that program and kern run at",
        }, vcpus = {
                .key = "vcpus", .type = STATS_GAUGE, .metric = "vcpus",
                .title = "virtual CPUs", .help = "Virtual CPUs that were made",
        };

        add_up();
        stats_count(s, &level, NULL, CONTROL->level);
        stats_count(s, &vcpus, NULL, CONTROL->nvcpus);
        add_faults(s);
        add_latencies(s);
        add_counters(s);
        add_exits(s);
}

void counters_measure(bool statistics)
{
        struct control *c = CONTROL;

        atomic_store_explicit(&c->stats_on, statistics, memory_order_relaxed);
        /* With neither statistics nor a profile a vCPU times its first fetch for nothing. */
        atomic_store_explicit(&c->fetch_mask, c->profile    ? 0
                                              : statistics ? FETCH_SAMPLE - 1
                                                           : ~0ull,
                              memory_order_relaxed);
}

uint64_t counters_value(enum vcpu_counter c) { return total.counter[c]; }

const uint64_t *counters_latency(enum latency kind, uint64_t *ticks)
{
        *ticks = total.ticks[kind];
        return total.hist[kind];
}

/* At most `most`: the program may have written there, in kern's image. */
static uint64_t kern_frames(enum kern_frames which, uint64_t most)
{
        uint64_t at = CONTROL->frames_of[which];

        if (at - WINDOW >= CONTROL_OFF - sizeof(uint32_t) || at % sizeof(uint32_t))
                return most;
        uint32_t n = atomic_load_explicit((_Atomic uint32_t *)at, memory_order_relaxed);
        return n < most ? n : most;
}

uint64_t counters_cache_used(void)
{
        return CONTROL->nframes - kern_frames(FRAMES_FREE, CONTROL->nframes);
}

/* Below 0 where a vCPU has told of frames that ceased to be hot, and another has not yet told of as
 * many that became so. */
uint64_t counters_frames_hot(void)
{
        uint64_t hot = kern_frames(FRAMES_HOT, UINT32_MAX);

        return hot <= CONTROL->nframes ? hot : 0;
}

uint64_t counters_frames_to_be_cold(void)
{
        return kern_frames(FRAMES_TO_BE_COLD, CONTROL->nframes);
}
