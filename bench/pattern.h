/*
 * One access pattern for all ways of having memory that is not there: touch.c (vmrun, Linux swap)
 * and uffd.c share it, so that what is compared differs in nothing else.
 *
 * A run fills the region in order, goes over it once unmeasured in random order, so that the local
 * share is in a steady state, and then does the measured passes. A pass visits each page once, in
 * an order of its own. Each access is timed by itself (fault latency) and the passes as a whole
 * (cost an access: on one CPU this holds eviction too), and what it finds is verified.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define PAGE 4096
#define WORDS (PAGE / 8)

struct pattern {
        unsigned log2_pages;
        unsigned passes;                /* measured ones */
        bool write; /* each access adds 1 to a word: it faults as a write; else a load */
        bool same;                      /* all pages are alike: an access adds 0 */
        uint64_t seed;
        uint64_t *data;                 /* the region */
        void (*before)(void);           /* each access that is timed, if not NULL */
};

static inline uint64_t mix64(uint64_t x)
{
        x ^= x >> 31;
        x *= 0x7fb5d329728ea185ull;
        x ^= x >> 27;
        x *= 0x81dadef4bc2dd44dull;
        return x ^ x >> 33;
}

/*
 * The k-th page of a pass: a permutation of [0, 2^bits) without a table of it, which would be paged
 * too.
 */
static inline uint64_t permute(uint64_t k, uint64_t key, unsigned bits)
{
        uint64_t mask = (1ull << bits) - 1;
        unsigned half = (bits + 1) / 2;

        k = (k ^ key) & mask;
        for (unsigned round = 0; round < 3; round++) {
                k = k * (2 * (key >> (8 * round) & 0xffff) + 0x9e3779b1u) & mask;
                k ^= k >> half;
        }
        return (k + (key >> 32)) & mask;
}

/* What word `at` of a page holds before anything is added. */
static inline uint64_t content(const struct pattern *pt, uint64_t page, unsigned at)
{
        return mix64((pt->same ? 0 : page * WORDS) + at + 1);
}

/* The word of a page that a pass uses. */
static inline unsigned word_of(uint64_t page) { return mix64(page + 77) % WORDS; }

static inline uint64_t ticks(void)
{
        uint32_t lo, hi;
        __asm__ volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) :: "memory");
        return (uint64_t)hi << 32 | lo;
}

static inline uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/*
 * One timed access: a load, or an add to memory.  Nothing else between the two looks at the clock.
 */
static inline uint32_t timed_access(uint64_t *p, bool write, uint64_t add, uint64_t *value)
{
        uint64_t begin = ticks(), v;
        if (write)
                __asm__ volatile("addq %1, %0" : "+m"(*p) : "r"(add) : "cc", "memory");
        else
                __asm__ volatile("movq %1, %0" : "=r"(v) : "m"(*p) : "memory");
        uint64_t took = ticks() - begin;
        *value = write ? *p : v;
        return took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
}

static inline int by_value(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return (x > y) - (x < y);
}

static inline void fail(const char *what)
{
        perror(what);
        exit(1);
}

static inline void *map_anonymous(size_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                fail("mmap");
        madvise(p, size, MADV_NOHUGEPAGE);      /* pages are what is compared */
        return p;
}

static inline void fill(const struct pattern *pt, uint64_t *data)
{
        for (uint64_t page = 0; page < 1ull << pt->log2_pages; page++)
                for (unsigned at = 0; at < WORDS; at++)
                        data[page * WORDS + at] = content(pt, page, at);
}

/* A pass; took: where each access' ticks go, or NULL. */
static inline void run_pass(const struct pattern *pt, unsigned pass, uint32_t *took)
{
        uint64_t key = mix64(pt->seed + pass), n = 1ull << pt->log2_pages, add = !pt->same;

        for (uint64_t k = 0; k < n; k++) {
                uint64_t page = permute(k, key, pt->log2_pages), value;
                unsigned at = word_of(page);
                if (took && pt->before)
                        pt->before();
                uint32_t t = timed_access(&pt->data[page * WORDS + at], pt->write, add, &value);
                if (took)
                        took[k] = t;
                if (value != content(pt, page, at) + (pt->write ? add * (pass + 1) : 0)) {
                        fprintf(stderr, "page %lu of pass %u holds 0x%lx\n", page, pass, value);
                        exit(1);
                }
        }
}

/*
 * An access that takes this many ticks more than the fastest was a fault: a copy of a page alone
 * takes more.
 */
#define FAULT_TICKS 200

static inline void measure(const struct pattern *pt)
{
        uint64_t n = 1ull << pt->log2_pages, accesses = n * pt->passes;
        uint32_t *took = map_anonymous(accesses * sizeof(*took));
        struct rusage before, after;

        if (pt->same && mlock(took, accesses * sizeof(*took)) != 0)
                fail("mlock");
        memset(took, 1, accesses * sizeof(*took));
        run_pass(pt, 0, NULL);
        getrusage(RUSAGE_SELF, &before);
        uint64_t begin_ns = now_ns(), begin = ticks();
        for (unsigned pass = 0; pass < pt->passes; pass++)
                run_pass(pt, 1 + pass, took + pass * n);
        uint64_t spent = ticks() - begin, spent_ns = now_ns() - begin_ns;
        getrusage(RUSAGE_SELF, &after);

        qsort(took, accesses, sizeof(*took), by_value);
        uint64_t hits = 0, sum = 0;
        while (hits < accesses && took[hits] < took[0] + FAULT_TICKS)
                hits++;
        for (uint64_t i = hits; i < accesses; i++)
                sum += took[i];
        uint64_t faults = accesses - hits;
        uint32_t *f = took + hits, hit = took[0];
        printf("accesses %lu\nns_per_access %.1f\nticks_per_ns %.6f\nfaults %lu\nhit_ticks %u\n",
               accesses, (double)spent_ns / (double)accesses, (double)spent / (double)spent_ns,
               faults, hit);
        printf("majflt %ld\nminflt %ld\n", after.ru_majflt - before.ru_majflt,
               after.ru_minflt - before.ru_minflt);
        if (faults)             /* beyond what an access takes that finds its page */
                printf("fault_min %u\nfault_p50 %u\nfault_p90 %u\nfault_p99 %u\nfault_max "
                       "%u\nfault_mean %.1f\n",
                       f[0] - hit, f[faults / 2] - hit, f[faults * 9 / 10] - hit,
                       f[faults * 99 / 100] - hit, f[faults - 1] - hit,
                       (double)sum / (double)faults - hit);
}

static inline void pattern_default(struct pattern *pt)
{
        *pt = (struct pattern){ .log2_pages = 13, .passes = 3, .seed = 1 };
}

/* Takes argv[*i] if it is an option of the pattern, with its value. */
#define PATTERN_OPTIONS "[--mib N] [--passes N] [--write] [--same] [--seed N]"
static inline bool pattern_option(struct pattern *pt, int argc, char **argv, int *i)
{
        const char *option = argv[*i];

        if (strcmp(option, "--write") == 0) {
                pt->write = true;
                return true;
        }
        if (strcmp(option, "--same") == 0) {
                pt->same = true;
                return true;
        }
        if (*i + 1 == argc)
                return false;
        uint64_t value = strtoull(argv[*i + 1], NULL, 10);
        if (strcmp(option, "--mib") == 0 && value > 0 && (value & (value - 1)) == 0)
                pt->log2_pages = (unsigned)__builtin_ctzll(value) + 8;
        else if (strcmp(option, "--passes") == 0 && value > 0)
                pt->passes = (unsigned)value;
        else if (strcmp(option, "--seed") == 0)
                pt->seed = value;
        else
                return false;
        ++*i;
        return true;
}

#endif
