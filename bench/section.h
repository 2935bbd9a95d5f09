/*
 * A measured section of a program that needs no far memory: what it did before (mapping its pages,
 * above all) does not count.
 */
#ifndef BENCH_SECTION_H
#define BENCH_SECTION_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Runs part() `rounds` times over what it has been over once already. */
static inline uint64_t section(const char *name, uint64_t (*part)(void), unsigned rounds)
{
        uint64_t sum = part(), begin = now_ns();
        for (unsigned i = 0; i < rounds; i++)
                sum += part();
        printf("%s_ns %lu\n", name, now_ns() - begin);
        return sum;
}

static inline unsigned rounds_given(int argc, char **argv)
{
        unsigned n = argc == 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
        if (n == 0) {
                fprintf(stderr, "usage: %s ROUNDS\n", argv[0]);
                exit(2);
        }
        return n;
}

#endif
