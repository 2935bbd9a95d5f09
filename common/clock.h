/*
 * The clock that cannot be set: CLOCK_MONOTONIC in milliseconds, and waits with such a deadline.
 */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

int64_t now_ms(void);
/* The time ms milliseconds from now: for pthread's clocklock, clockwait and the like. */
struct timespec deadline_in_ms(uint64_t ms);
/* False: another thread still holds the mutex after limit_ms. */
bool lock_within(pthread_mutex_t *m, unsigned limit_ms);

#endif
