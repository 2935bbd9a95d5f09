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
/* Writes that file's content to x, from the host's own text at path.  name: one for which
 * procfs_is_numbers() is true. */
void procfs_numbers(struct thread *t, const char *path, const char *name, struct text *x);
void procfs_numbers_set(const struct image *im);
/* Set by PR_SET_THP_DISABLE; status and PR_GET_THP_DISABLE show it.  It changes nothing else: the
 * program has no huge pages.  Orders nothing. */
extern _Atomic bool procfs_no_huge_pages;

#endif
