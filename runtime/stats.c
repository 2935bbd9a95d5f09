/*
 * See stats.h.  Every line is "key value", keys in the order below, so that `awk '$1 == "faults.fetch" { print $2 }'` is all
 * the parsing one needs.  Counts of zero are printed too, except for exits and system calls, where the absent ones are zero.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/histogram.h"
#include "common/put.h"
#include "arena.h"
#include "far/far.h"
#include "files.h"
#include "stats.h"
#include "syscall.h"
#include "vmrun.h"

#define READER_MS 5000          /* the statistics wait no longer for a reader that takes nothing */

/* What abi.h adds later and nobody names here is printed by its number. */
static const char *const fault_names[FAULT_KINDS] = {
        [FAULT_ZERO] = "zero", [FAULT_FILE] = "file", [FAULT_FETCH] = "fetch", [FAULT_SHARED] = "shared", [FAULT_WAIT] = "wait",
        [FAULT_SPURIOUS] = "spurious",
};
static const char *const counter_names[CNT_COUNT] = {
        [CNT_FETCHED] = "fetched",
        [CNT_EVICTED_CLEAN] = "evicted_clean", [CNT_EVICTED_DIRTY] = "evicted_dirty", [CNT_WRITEBACK] = "writeback",
        [CNT_REFILLS] = "refills", [CNT_DOORBELLS] = "doorbells", [CNT_IO_DOORBELLS] = "io_doorbells", [CNT_FRAME_WAITS] = "frame_waits",
        [CNT_DIRECT_RECLAIM] = "direct_reclaim", [CNT_FLUSHES] = "flushes", [CNT_KICKS] = "kicks",
        [CNT_SYSCALLS_LOCAL] = "syscalls_local", [CNT_SYSCALLS_FORWARDED] = "syscalls_forwarded", [CNT_SCANNED] = "scanned",
        [CNT_EXITS] = "exits",
};
static const char *const exit_names[EXIT_OPS] = {
        [EXIT_READY] = "ready", [EXIT_SYSCALL] = "syscall", [EXIT_UPCALL_DONE] = "upcall_done", [EXIT_SIGNAL] = "signal",
        [EXIT_BUG] = "bug", [EXIT_LOG] = "log", [EXIT_FILE_READ] = "file_read", [EXIT_FILE_MAP] = "file_map",
        [EXIT_ANON_SHARED] = "anon_shared", [EXIT_SHM_ATTACH] = "shm_attach", [EXIT_SHARED_AGAIN] = "shared_again", [EXIT_FILE_REF] = "file_ref", [EXIT_SHARED_UNMAP] = "shared_unmap",
        [EXIT_SHARED_CHECK] = "shared_check", [EXIT_ARENA_COPY] = "arena_copy", [EXIT_MSYNC] = "msync", [EXIT_MINCORE] = "mincore", [EXIT_GROW_POOL] = "grow_pool",
        [EXIT_LEASE] = "lease", [EXIT_SLOTS_RELEASE] = "slots_release", [EXIT_WAIT_FRAMES] = "wait_frames", [EXIT_WAKE_FRAMES] = "wake_frames",
        [EXIT_SERVICE_SLEEP] = "service_sleep", [EXIT_SERVICE_WAKE] = "service_wake", [EXIT_WAIT_PTE] = "wait_pte",
        [EXIT_WAKE_PTE] = "wake_pte", [EXIT_KICK] = "kick", [EXIT_YIELD] = "yield", [EXIT_TIME] = "time", [EXIT_EVENT] = "event", [EXIT_PAUSE] = "pause",
};

const char *stats_exit_name(unsigned op)
{
        return op < EXIT_OPS && exit_names[op] ? exit_names[op] : "none";
}

/* Where the report goes. */
static struct stats_place place = { .dir_fd = -1, .direct_fd = -1 };

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

uint64_t stats_percentile(const uint64_t *hist, uint64_t per_million)
{
        uint64_t total = 0, seen = 0;
        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                total += hist[b];
        if (!total)
                return 0;
        /* The smallest rank that covers the share, at least 1: with three samples p50 is the second, p99 the third. */
        uint64_t rank = (uint64_t)(((__uint128_t)total * per_million + 999999) / 1000000);
        for (unsigned b = 0; b < HIST_BUCKETS; b++) {
                seen += hist[b];
                if (seen && seen >= rank)
                        return b + 1 < HIST_BUCKETS ? hist_low(b + 1) - 1 : hist_low(b);
        }
        return 0;
}

static void line(FILE *f, const char *group, const char *key, uint64_t v)
{
        fprintf(f, "%s%s%s %llu\n", group, *group ? "." : "", key, (unsigned long long)v);
}

/* The i-th of a group, by its name if it has one. */
static void named(FILE *f, const char *group, const char *name, unsigned i, uint64_t v)
{
        char number[16];
        snprintf(number, sizeof(number), "%u", i);
        line(f, group, name ? name : number, v);
}

static void print_latencies(FILE *f, const struct totals *t, uint64_t tsc_khz)
{
        static const struct { const char *name; uint64_t per_million; } points[] = {
                { "p50", 500000 }, { "p90", 900000 }, { "p99", 990000 }, { "p99.9", 999000 }, { "max", 1000000 },
        };
        char group[64];

        for (unsigned i = 0; tsc_khz && i < FAULT_KINDS - 1; i++) {
                if (!stats_percentile(t->hist[i], 1000000))
                        continue;
                snprintf(group, sizeof(group), "latency_ns.%s", fault_names[i]);
                for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
                        uint64_t ticks = stats_percentile(t->hist[i], points[p].per_million);
                        line(f, group, points[p].name, (uint64_t)((__uint128_t)ticks * 1000000 / tsc_khz));
                }
        }
}

/* What guest RAM outside the cache has in memory: its pool is address space for the most part, which
 * costs nothing.  And the file in which the processes of a tree keep who has which slots. */
static uint64_t metadata_bytes(void)
{
        static unsigned char here[65536];       /* a thread's stack is small */
        uint64_t bytes = 0, step = sizeof(here) * PAGE_SIZE;
        struct stat st;

        for (uint64_t off = 0; off < CONTROL->pool_end; off += step) {
                uint64_t n = CONTROL->pool_end - off < step ? CONTROL->pool_end - off : step;
                if (mincore((void *)(WINDOW + off), n, here) != 0)
                        break;
                for (uint64_t i = 0; i < n / PAGE_SIZE; i++)
                        bytes += (here[i] & 1) * PAGE_SIZE;
        }
        int tree = slabs_tree_fd(NULL);
        if (tree >= 0 && fstat(tree, &st) == 0)
                bytes += (uint64_t)st.st_blocks * 512;
        return bytes;
}

/* VmHWM and the parts of the resident set at this moment, which is near the peak: frames and far pages are never given back. */
static void print_memory(FILE *f)
{
        static const char *const fields[][2] = {
                { "VmHWM:", "peak" }, { "RssAnon:", "anon" }, { "RssFile:", "file" }, { "RssShmem:", "shmem" },
        };
        char text[256];
        unsigned long long kib;
        uint64_t used, backed;

        FILE *st = fopen("/proc/self/status", "re");
        while (st && fgets(text, sizeof(text), st))
                for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                        size_t n = strlen(fields[i][0]);
                        if (strncmp(text, fields[i][0], n) == 0 && sscanf(text + n, "%llu kB", &kib) == 1)
                                line(f, "rss_bytes", fields[i][1], kib << 10);
                }
        if (st)
                fclose(st);
        arena_usage(&used, &backed);
        line(f, "", "cache_bytes", CONTROL->nframes * PAGE_SIZE);
        line(f, "", "metadata_bytes", metadata_bytes());
        line(f, "", "far_bytes", CONTROL->far_pages * PAGE_SIZE);
        line(f, "", "far_leased_bytes", far_leased_pages() * PAGE_SIZE);
        line(f, "", "shared_bytes", used);
        line(f, "", "mapped_files", files_live());
}

void stats_print(FILE *f, uint64_t tsc_khz)
{
        static struct totals t;         /* 13 KiB: too much for a signal's or a thread's small stack */
        uint64_t total = 0, evicted, fault_exits = 0;

        add_up(&t);
        line(f, "", "vmrun_statistics", 1);             /* version of this format */
        line(f, "", "pid", (uint64_t)getpid());
        line(f, "", "execs", place.execs);
        line(f, "", "privilege", CONTROL->level);
        line(f, "", "vcpus", CONTROL->nvcpus);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                total += t.s.faults[i];
        line(f, "faults", "total", total);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                named(f, "faults", fault_names[i], i, t.s.faults[i]);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                fault_exits += t.s.fault_exits[i];
        line(f, "fault_exits", "total", fault_exits);
        for (unsigned i = 0; i < FAULT_KINDS; i++)
                named(f, "fault_exits", fault_names[i], i, t.s.fault_exits[i]);
        print_latencies(f, &t, tsc_khz);

        for (unsigned i = 0; i < CNT_COUNT; i++)
                named(f, "count", counter_names[i], i, t.s.counter[i]);
        evicted = t.s.counter[CNT_EVICTED_CLEAN] + t.s.counter[CNT_EVICTED_DIRTY];
        line(f, "", "evicted", evicted);
        fprintf(f, "doorbells_per_64_evictions %.2f\n", evicted ? 64.0 * (double)t.s.counter[CNT_DOORBELLS] / (double)evicted : 0.0);

        total = 0;
        for (unsigned i = 0; i < EXIT_OPS; i++)
                total += t.s.exits[i];
        line(f, "exits", "total", total);
        for (unsigned i = 0; i < EXIT_OPS; i++)
                if (t.s.exits[i])
                        named(f, "exits", exit_names[i], i, t.s.exits[i]);
        total = 0;
        for (unsigned i = 0; i < SYSCALL_COUNTS; i++)
                total += syscall_counts[i];
        line(f, "syscalls", "total", total);
        for (unsigned i = 0; i < SYSCALL_COUNTS; i++) {
                if (!syscall_counts[i])
                        continue;
                named(f, "syscalls", i == SYSCALL_COUNTS - 1 ? "other" : syscall_name((long)i), i, syscall_counts[i]);
        }
        print_memory(f);
}

/* --- where it goes --- */

static _Noreturn void cannot_write(int err)
{
        const char *cure = err == EISDIR ? "name a file in it" :
                           err == ENOENT || err == ENOTDIR ? "make its folder first" :
                           err == ENAMETOOLONG ? "give a shorter name" :
                           "name a file where this user may write";
        die_(EXIT_VMRUN_FAILED, "--stats=%s: cannot be written: %s: %s", opt.stats_file,
             strerror(err), cure);
}

void stats_init(void)
{
        char *real, *slash;
        struct stat st;

        if (!opt.stats || !opt.stats_file)
                return;
        real = realpath(opt.stats_file, NULL);          /* replace what a link points to, not the link */
        if (real && stat(real, &st) == 0 && !S_ISREG(st.st_mode)) {
                place.direct_fd = PRIVFD_NEW(open(real, O_WRONLY | O_CLOEXEC | O_NOCTTY));
                if (place.direct_fd < 0)
                        cannot_write(S_ISDIR(st.st_mode) ? EISDIR : -place.direct_fd);
                free(real);
                return;
        }
        if (!real && !(real = strdup(opt.stats_file)))
                cannot_write(ENOMEM);
        slash = strrchr(real, '/');
        const char *name = slash ? slash + 1 : real;
        if (!*name || strlen(name) > NAME_MAX - STATS_SUFFIX)
                cannot_write(*name ? ENAMETOOLONG : EISDIR);
        strcpy(place.name, name);
        place.pid = getpid();
        if (slash)
                *(slash == real ? slash + 1 : slash) = 0;
        place.dir_fd = open(slash ? real : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (place.dir_fd < 0 || faccessat(place.dir_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
                cannot_write(errno);
        place.dir_fd = privfd_move(place.dir_fd);
        if (place.dir_fd < 0)
                cannot_write(-place.dir_fd);
        place.mode = umask(0);
        umask(place.mode);
        place.mode = 0666 & ~place.mode;
        free(real);
}

void stats_keep(struct stats_place *p)
{
        *p = place;
        p->execs++;
}

void stats_adopt(const struct stats_place *p)
{
        place = *p;
}

static bool print_to(int fd, uint64_t tsc_khz)
{
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        if (!f)
                return false;
        stats_print(f, tsc_khz);
        bool good = !ferror(f);
        good &= fclose(f) == 0;
        good = good && put_all(fd, text, size, READER_MS);
        free(text);
        return good;
}

void stats_report(uint64_t tsc_khz)
{
        char temporary[NAME_MAX + 1], name[NAME_MAX + 1];

        if (!opt.stats)
                return;
        if (!opt.stats_file || place.direct_fd >= 0) {
                if (!print_to(opt.stats_file ? place.direct_fd : message_fd(), tsc_khz))
                        warnx_("the statistics could not be written: %s", strerror(errno));
                return;
        }
        /* Whoever waits for the file sees all of it or none. */
        snprintf(temporary, sizeof(temporary), ".%.*s.%d", NAME_MAX - 16, place.name, getpid() % 10000000);
        if (getpid() == place.pid && !place.execs)
                snprintf(name, sizeof(name), "%s", place.name);
        else
                snprintf(name, sizeof(name), "%.*s.%d.%u", NAME_MAX - STATS_SUFFIX, place.name, getpid(), place.execs);
        int fd = openat(place.dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        bool good = fd >= 0 && print_to(fd, tsc_khz) && fchmod(fd, place.mode) == 0 && renameat(place.dir_fd, temporary, place.dir_fd, name) == 0;
        if (!good) {
                warnx_("--stats=%s: could not be written: %s", opt.stats_file, strerror(errno));
                unlinkat(place.dir_fd, temporary, 0);
        }
        if (fd >= 0)
                close(fd);
}
