/*
 * Bounds of waits.
 */
#ifndef VMRUN_DEADLINE_H
#define VMRUN_DEADLINE_H

#include <stdint.h>
#include <time.h>

/* So many milliseconds from now, by CLOCK_MONOTONIC, which nobody sets: for pthread's clocklock,
 * clockwait and their like. */
static inline struct timespec deadline_in_ms(uint64_t ms)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        uint64_t ns = (uint64_t)t.tv_nsec + ms % 1000 * 1000000;
        return (struct timespec){ .tv_sec = t.tv_sec + (time_t)(ms / 1000 + ns / 1000000000),
                                  .tv_nsec = (long)(ns % 1000000000) };
}

#endif
