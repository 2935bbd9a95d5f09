#include "common/clock.h"

int64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct timespec deadline_in_ms(uint64_t ms)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        uint64_t ns = (uint64_t)t.tv_nsec + ms % 1000 * 1000000;
        return (struct timespec){ .tv_sec = t.tv_sec + (time_t)(ms / 1000 + ns / 1000000000),
                                  .tv_nsec = (long)(ns % 1000000000) };
}

bool lock_within(pthread_mutex_t *m, unsigned limit_ms)
{
        const struct timespec until = deadline_in_ms(limit_ms);

        return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until) == 0;
}
