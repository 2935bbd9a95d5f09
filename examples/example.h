/*
 * What examples share: numbers on the command line, random numbers, memory, a clock, threads. A
 * program defines PROGRAM, its name for messages, before it includes this.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define THREADS_MAX     256

/* The exit statuses of all examples. */
enum { RIGHT = 0, WRONG = 1, CANNOT = 2 };

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014), a permutation of the 64-bit integers. */
static inline uint64_t scramble(uint64_t z)
{
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
}

/* Random number i of those that seed stands for, in any order: splitmix64. */
static inline uint64_t random_at(uint64_t seed, uint64_t i)
{
        return scramble(seed + (i + 1) * 0x9e3779b97f4a7c15);
}

static inline uint64_t next_random(uint64_t *state)
{
        return scramble(*state += 0x9e3779b97f4a7c15);
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double next_real(uint64_t *state)
{
        return (double)(next_random(state) >> 11) * 0x1p-53;
}

/* Uniform in [0, n), by multiplication (Lemire 2019); its bias of n / 2^64 is of no account. */
static inline uint64_t below(uint64_t random, uint64_t n)
{
        return (uint64_t)(((unsigned __int128)random * n) >> 64);
}

/* In seconds, from some start. */
static inline double seconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline _Noreturn void bad_value(const char *what, const char *s, const char *problem)
{
        fprintf(stderr, PROGRAM ": %s: %s: %s\n", what, problem, s);
        exit(CANNOT);
}

/*
 * The number s, from min to max; with suffixes, it may end in K, M or G. Ends the program if it is
 * none; what names the option.
 */
static inline uint64_t parse_number(const char *what, const char *s, bool suffixes, uint64_t min,
                                    uint64_t max)
{
        static const char letters[] = "KMG";
        char *end;
        errno = 0;
        uint64_t v = strtoull(s, &end, 0);
        bool good = !errno && end != s && *s != '-';
        const char *letter = suffixes && *end ? strchr(letters, *end) : NULL;
        if (good && letter) {
                unsigned shift = 10 * (unsigned)(letter - letters + 1);
                good = v <= UINT64_MAX >> shift;
                v <<= shift;
                end++;
        }
        if (!good || *end)
                bad_value(what, s, "not a number");
        if (v < min || v > max)
                bad_value(what, s, v < min ? "too small" : "too large");
        return v;
}

static inline unsigned parse_threads(const char *s)
{
        return (unsigned)parse_number("--threads", s, false, 1, THREADS_MAX);
}

/* Likewise, a real number. */
static inline double parse_real(const char *what, const char *s, double min, double max)
{
        char *end;
        double v = strtod(s, &end);
        if (end == s || *end || v != v)
                bad_value(what, s, "not a number");
        if (v < min || v > max)
                bad_value(what, s, v < min ? "too small" : "too large");
        return v;
}

/* Memory for n things of `each` bytes, zeroed. Ends the program if there is not enough. */
static inline void *reserve(uint64_t n, size_t each)
{
        size_t bytes;
        void *p = MAP_FAILED;
        errno = ENOMEM;
        if (!__builtin_mul_overflow(n, each, &bytes))
                p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
                fprintf(stderr, PROGRAM ": no memory for %" PRIu64 " times %zu bytes: %s\n", n,
                        each, strerror(errno));
                exit(CANNOT);
        }
        return p;
}

/* A part of a loop: [from, to), by a thread. */
struct part {
        void (*work)(const struct part *part);
        unsigned thread;
        uint64_t from, to;
};

static inline void *run_part(void *arg)
{
        const struct part *part = arg;
        part->work(part);
        return NULL;
}

/*
 * Calls work for [0, n) in as many equal parts as there are threads, 1 to THREADS_MAX, each in a
 * thread of its own; the first is the caller's. Returns when all are done. Ends the program if a
 * thread cannot be made.
 */
static inline void in_parallel(unsigned threads, uint64_t n, void (*work)(const struct part *part))
{
        static struct part parts[THREADS_MAX];
        static pthread_t ids[THREADS_MAX];
        for (unsigned t = threads; t-- > 0;) {
                uint64_t each = n / threads, more = n % threads;
                uint64_t from = t * each + (t < more ? t : more);
                parts[t] = (struct part){ work, t, from, from + each + (t < more) };
                int err = t ? pthread_create(&ids[t], NULL, run_part, &parts[t]) : 0;
                if (err) {
                        fprintf(stderr, PROGRAM ": cannot make thread %u: %s\n", t, strerror(err));
                        exit(CANNOT);
                }
        }
        work(&parts[0]);
        for (unsigned t = 1; t < threads; t++)
                pthread_join(ids[t], NULL);
}

#endif
