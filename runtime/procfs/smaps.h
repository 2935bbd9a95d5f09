/*
 * smaps and smaps_rollup of /proc/self.
 */
#ifndef VMRUN_PROCFS_SMAPS_H
#define VMRUN_PROCFS_SMAPS_H

#include <stdbool.h>

struct text;
struct thread;

/* smaps, or smaps_rollup. */
void procfs_smaps(struct thread *t, bool rollup, struct text *x);

#endif
