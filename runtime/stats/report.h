/*
 * Reports: when the statistics are printed, and where to.
 */
#ifndef VMRUN_STATS_REPORT_H
#define VMRUN_STATS_REPORT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include "common/outfile.h"
#include "stats/stats.h"

/* Registers version of the format, process, number of execve calls. */
void stats_register_identity(void);
/* stats_count_up() for any thread at any time. */
int stats_snapshot(struct stats *s);
/* Prints the counts since the start or the last stats_reset().  Counts of one snapshot are of
 * slightly different times while the program runs.  f must not make it wait, as a memory stream: a
 * fork waits for this.  0, or -ENOMEM; the caller looks for errors of f. */
int stats_write(FILE *f, enum stats_format format);
/* From here on counters and histograms count from 0.  0 or -ENOMEM. */
int stats_reset(void);

/* Remembers where opt.stats_file is, before the program can change directory or root; ends vmrun if
 * it cannot be written. */
void stats_init(void);
/* Prints the last report where --stats says; nothing without --stats.  status: of which the lowest
 * eight bits count, 128 and the number of a signal, or STATS_EXECVE.  After it no report is
 * printed, unless stats_goes_on() says that the program did not end after all. */
#define STATS_EXECVE (-1)
void stats_report(int status);
void stats_goes_on(void);

/* Where reports go: a name in a directory, or a file that is not replaced (a terminal, a pipe). */
struct stats_place {
        struct outfile file;            /* counts execve calls also if there is no file */
        int direct_fd;                  /* private; -1: `file`, or standard error */
        enum stats_format format;
};
/* stats_keep() fills p for the next program after execve; stats_adopt() applies it there. */
void stats_keep(struct stats_place *p);
void stats_adopt(const struct stats_place *p);

/* For the thread of --stats-interval. */

/* Held by the thread that collects and prints, and over a fork. */
extern pthread_mutex_t stats_lock;
/* Prints a report, unless the last report was printed.  Under stats_lock. */
void stats_print_report(bool last);
/* Was the last report printed?  Under stats_lock. */
bool stats_is_over(void);
/* Does the report replace a file?  Else it goes to standard error or, say, a pipe. */
bool stats_has_file(void);

#endif
