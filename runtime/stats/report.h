/*
 * What the thread of --stats-interval (interval.c) needs of the reports (report.c).
 */
#ifndef VMRUN_STATS_REPORT_H
#define VMRUN_STATS_REPORT_H

#include <pthread.h>
#include <stdbool.h>

/* Held by the thread that collects and prints, and over a fork. */
extern pthread_mutex_t stats_lock;
/* Prints a report, unless the last one was printed.  Under stats_lock. */
void stats_print_report(bool last);
/* Was the last one printed?  Under stats_lock. */
bool stats_is_over(void);
/* Does the report replace a file?  Else it goes to standard error or, say, a pipe. */
bool stats_has_file(void);

#endif
