/*
 * vmrun --stats: what happened, as text that people and scripts read.  The keys are documented in vmrun(1).
 */
#ifndef VMRUN_STATS_H
#define VMRUN_STATS_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Remembers where opt.stats_file is, before the program can change directory or root; ends vmrun if it cannot be written. */
void stats_init(void);
/* Prints them where --stats says; nothing without it.  After the last vCPU stopped, or the counts are of slightly different moments.
 * tsc_khz: of the guest's TSC; 0: unknown, then latencies are left out. */
void stats_report(uint64_t tsc_khz);

/* Where reports go: a name in a directory, or a file that is not replaced (a terminal, a pipe). */
struct stats_place {
        int dir_fd, direct_fd;          /* private; -1: the other, or standard error */
        pid_t pid;                      /* of the process that started it all, whose first program's report has the name itself; */
        unsigned execs;                 /* the others add pid and this number of execve calls since, which no two reports share */
        mode_t mode;
        char name[NAME_MAX + 1];
};
#define STATS_SUFFIX 24                 /* bytes of a name that are kept free for what is added */
/* For the program that is executed next, and there. */
void stats_keep(struct stats_place *p);
void stats_adopt(const struct stats_place *p);

/* The name of an enum exit_op. */
const char *stats_exit_name(unsigned op);

/* The text itself. */
void stats_print(FILE *f, uint64_t tsc_khz);
/* Upper end, in ticks, of the histogram bucket in which the part-th of a million (500000: the median) lies; 0: no samples. */
uint64_t stats_percentile(const uint64_t *hist, uint64_t per_million);

#endif
