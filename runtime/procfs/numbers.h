/*
 * stat, statm and status of /proc/self and of its tasks.
 */
#ifndef VMRUN_PROCFS_NUMBERS_H
#define VMRUN_PROCFS_NUMBERS_H

#include <sys/types.h>

struct image;
struct text;
struct thread;

/* "stat", "statm" or "status" of the process (task 0) or of a thread. */
void procfs_numbers(struct thread *t, const char *name, pid_t task, struct text *x);
void procfs_numbers_set(const struct image *im);

#endif
