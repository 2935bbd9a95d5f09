/*
 * vmrun --stats: what happened, as text that people and scripts read.  The keys are documented in vmrun(1).
 */
#ifndef VMRUN_STATS_H
#define VMRUN_STATS_H

#include <stdio.h>
#include <stdint.h>

/* Remembers where opt.stats_file is, before the program can change directory or root; ends vmrun if it cannot be written. */
void stats_init(void);
/* Prints them where --stats says; nothing without it.  After the last vCPU stopped, or the counts are of slightly different moments.
 * tsc_khz: of the guest's TSC; 0: unknown, then latencies are left out. */
void stats_report(uint64_t tsc_khz);

/* The name of an enum exit_op. */
const char *stats_exit_name(unsigned op);

/* The text itself. */
void stats_print(FILE *f, uint64_t tsc_khz);
/* Upper end, in ticks, of the histogram bucket in which the part-th of a million (500000: the median) lies; 0: no samples. */
uint64_t stats_percentile(const uint64_t *hist, uint64_t per_million);

#endif
