/*
 * vmrun --stats: counts as text for people and scripts.  The keys are documented in vmrun(1).
 */
#ifndef VMRUN_STATS_H
#define VMRUN_STATS_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Remembers where opt.stats_file is, before the program can change directory or root; ends vmrun if
 * it cannot be written. */
void stats_init(void);
/* Prints the report where --stats says; nothing without --stats.  Called after the last vCPU
 * stopped; otherwise the counts are of slightly different times. */
void stats_report(void);

/* Where reports go: a name in a directory, or a file that is not replaced (a terminal, a pipe). */
struct stats_place {
        int dir_fd, direct_fd;          /* private; -1: the other, or standard error */
        /* of the process started first, whose first program's report has the plain name; */
        pid_t pid;
        /* others add their pid and this number of execve calls, so that no two reports have the
         * same name */
        unsigned execs;
        mode_t mode;
        char name[NAME_MAX + 1];
};
#define STATS_SUFFIX 24                 /* bytes of a name reserved for the addition */
/* stats_keep() fills p for the next program after execve; stats_adopt() applies it there. */
void stats_keep(struct stats_place *p);
void stats_adopt(const struct stats_place *p);

/* The owners of statistics print their lines in the order in which they were registered, at
 * start. */
typedef void stats_fn(FILE *f);
void stats_register(stats_fn *fn);
/* "group.key value"; a group of "" has no dot. */
void stats_line(FILE *f, const char *group, const char *key, uint64_t v);
/* The i-th line of a group, by its name if it has one. */
void stats_numbered(FILE *f, const char *group, const char *name, unsigned i, uint64_t v);

#endif
