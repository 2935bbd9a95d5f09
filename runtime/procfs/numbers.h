/*
 * stat, statm, status, limits and sched of /proc/self and of its tasks.
 */
#ifndef VMRUN_PROCFS_NUMBERS_H
#define VMRUN_PROCFS_NUMBERS_H

#include <stdbool.h>

struct image;
struct text;
struct thread;

/* Whether a file of this name is written here. */
bool procfs_is_numbers(const char *name);
/* Writes it by the host's file of that name, which is at path. */
void procfs_numbers(struct thread *t, const char *path, const char *name, struct text *x);
void procfs_numbers_set(const struct image *im);

#endif
