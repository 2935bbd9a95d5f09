/*
 * Counters of the vCPUs.
 */
#ifndef VMRUN_COUNTERS_H
#define VMRUN_COUNTERS_H

#include <stdbool.h>
#include "abi_stats.h"
#include "stats/stats.h"

/* Sets what kern measures from now on: all that statistics need, or only what a profile needs
 * (CONTROL->profile). */
void counters_measure(bool statistics);

/* The name of an enum exit_op. */
const char *counters_exit_name(unsigned op);

/* For stats_register(): of all vCPUs together. */
void counters_stats(struct stats *s);
/* A counter and a histogram of all vCPUs, as counters_stats() has just found them.  For owners that
 * are registered after it. */
uint64_t counters_value(enum vcpu_counter c);
const uint64_t *counters_latency(enum latency kind, uint64_t *ticks);
/* Frames of the cache that are in use, or in the reserve of a vCPU. */
uint64_t counters_cache_used(void);
/* Frames that are hot, about, and those that are to be cold, at least (kern/pager/clock.c). */
uint64_t counters_frames_hot(void);
uint64_t counters_frames_to_be_cold(void);

#endif
