/*
 * Which file of /proc a path means, and the links there that must lead to the program.
 */
#ifndef VMRUN_PROC_PATH_H
#define VMRUN_PROC_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "vm/thread.h"

/* The absolute real path of the program; set before it starts and at exec. Copied. */
void procfs_set_exe(const char *path);
/* The path a call that follows links shall use: path itself, or the program's file for
 * /proc/self/exe. */
const char *procfs_follow(int dirfd, const char *path);

/* The same for a call that asks for a link itself: where the host has none such, another link. */
const char *procfs_itself(int dirfd, const char *path);

/* The target of a link the program must not see: its length in buf (cut at n, no NUL), -ENOENT, or
 * -1: let the kernel answer. */
long procfs_readlink(int dirfd, const char *path, char *buf, size_t n);

/* Is fd a listing of this process's descriptors, threads or mappings, where vmrun's own must not
 * appear? */
enum procfs_dir { PROCFS_OTHER, PROCFS_FDS, PROCFS_TASKS, PROCFS_MAPS } procfs_dir(int fd);
/* Is that an entry to be left out? */
bool procfs_hides(enum procfs_dir dir, const char *name);

/*
 * Writes what comes after /proc/self/ to rest ("exe", "maps", "fd/7"), after /proc/ for global
 * files with a leading slash ("/meminfo").  A path by way of a thread is the same, with *task its
 * number; else that is 0.  false: not a path into /proc, or another process's.
 */
bool procfs_own_path(int dirfd, const char *path, char rest[PATH_MAX], pid_t *task);
/* Is that a thread that vmrun has for itself? */
bool procfs_is_helper(pid_t tid);

/* Calls fn for each mapping of the program, in order of address. */
void procfs_each_map(struct thread *t, void (*fn)(const struct map_entry *, void *), void *arg);

#endif
