/* Times of single events, and their percentiles.  (bench only) */
#ifndef BENCH_SAMPLES_H
#define BENCH_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct samples { uint64_t *ns; unsigned n, room; };

static inline uint64_t samples_now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* False: room is 0, or there is no memory. */
static inline bool samples_init(struct samples *s, unsigned room)
{
        *s = (struct samples){ .ns = room ? calloc(room, sizeof(*s->ns)) : NULL, .room = room };
        return s->ns != NULL;
}

static inline void samples_add(struct samples *s, uint64_t ns)
{
        if (s->n < s->room)
                s->ns[s->n++] = ns;
}

static inline int samples_compare(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

/* NAME_p50 and NAME_p99, and starts over. */
static inline void samples_print(struct samples *s, const char *name)
{
        qsort(s->ns, s->n, sizeof(*s->ns), samples_compare);
        if (s->n)
                printf("%s_p50 %llu\n%s_p99 %llu\n", name, (unsigned long long)s->ns[s->n / 2],
                       name, (unsigned long long)s->ns[(uint64_t)s->n * 99 / 100]);
        s->n = 0;
}

#endif
