/*
 * Files that are truncated, or written, while programs run from them or have them mapped.
 */
#ifndef VMRUN_SYSCALLS_TRUNCATE_H
#define VMRUN_SYSCALLS_TRUNCATE_H

#include <stdbool.h>

struct thread;

/* Would opening it with these flags write to a program that vmrun runs? */
bool sys_text_busy(int dirfd, const char *path, int flags);
/* The file behind a descriptor may have been truncated. */
void sys_cut(struct thread *t, int fd);

#endif
