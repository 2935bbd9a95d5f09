/*
 * /proc as the program must see it: the program where the host would show vmrun.
 */
#ifndef VMRUN_PROCFS_H
#define VMRUN_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "marshal/proc_path.h"
#include "vm/thread.h"

struct image;
/* Sets what was loaded: addresses of strings, code and data, and the auxiliary vector.  Copied. */
void procfs_set_image(const struct image *im);

/*
 * Opens a file of /proc that vmrun writes itself.  true: *ret is a new fd or -errno.  false: not
 * one of those; open it as procfs_follow says.
 */
bool procfs_open(struct thread *t, int dirfd, const char *path, int flags, long *ret);

/* The program's memory in bytes: its cache and the capacity of the far tiers; and approximately how
 * much of it is free. */
uint64_t procfs_mem_total(void);
uint64_t procfs_mem_free(struct thread *t);

#endif
