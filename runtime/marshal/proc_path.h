/*
 * Which file of /proc a path names, and the links there that must lead to the program.
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
/* The path to use in a call that follows links: path itself, or the program's file for
 * /proc/self/exe. */
const char *procfs_follow(int dirfd, const char *path);

/* The path to use in a call about a link itself.  If the host has no such link, another link. */
const char *procfs_itself(int dirfd, const char *path);

/* The target of a link the program must not see: its length in buf (cut at n, no NUL), -ENOENT, or
 * -1: let the kernel answer. */
long procfs_readlink(int dirfd, const char *path, char *buf, size_t n);

/* Does fd list this process's descriptors, threads or mappings?  vmrun's own must not appear
 * there. */
enum procfs_dir { PROCFS_OTHER, PROCFS_FDS, PROCFS_TASKS, PROCFS_MAPS } procfs_dir(int fd);
/* Must this entry be left out? */
bool procfs_hides(enum procfs_dir dir, const char *name);
/* After a successful call of the stat family, with its arguments as the kernel had them: the
 * directory of the program's threads has a link for each of them, and none for vmrun's own. */
void procfs_links(struct thread *t, long nr, const uint64_t h[6]);

/*
 * Writes to rest the part after /proc/self/ ("exe", "maps", "fd/7"); for global files the part
 * after /proc, with a leading slash ("/meminfo").  For a path through a thread *task is its number,
 * else 0.  false: not a path into /proc, or of another process.
 */
bool procfs_own_path(int dirfd, const char *path, char rest[PATH_MAX], pid_t *task);
/* Is that a thread of vmrun itself? */
bool procfs_is_helper(pid_t tid);

/* Calls fn for each mapping of the program, in order of address. */
void procfs_each_map(struct thread *t, void (*fn)(const struct map_entry *, void *), void *arg);

#endif
