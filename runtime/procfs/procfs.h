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

/* PROCFS_MAPS: the result of getdents (or getdents64) from fd's position on, or -errno.
 * (maps.c) */
long procfs_list_maps(struct thread *t, int fd, bool is64, char *buf, size_t room);
/* /proc/self/mem.  (mem.c) Opens it: a new fd, or -errno; tells whether fd is such a
 * descriptor; reads and writes, at *pos or at the descriptor's own position. */
struct sys_iov;
long procfs_mem_open(struct thread *t, int flags);
/* makes the file that it needs, before a vfork: 0 or -errno */
int procfs_mem_make(void);
bool procfs_mem_is_(int fd);
extern _Atomic bool procfs_mem_exists;
static inline bool procfs_mem_is(int fd) { return procfs_mem_exists && procfs_mem_is_(fd); }
long procfs_mem_rw(struct thread *t, int fd, const struct sys_iov *v, const int64_t *pos,
                   bool write);
long procfs_mem_seek(int fd, int64_t off, unsigned whence);
int procfs_mem_map(int fd);             /* mmap's error for it: -errno */
void procfs_mem_forked(void);

/* PR_SET_THP_DISABLE: vmrun's own memory is not asked, only status tells of it.  Orders nothing. */
extern _Atomic bool procfs_no_huge_pages;

/* The program's memory in bytes: its cache and the capacity of the far tiers; and approximately how
 * much of it is free. */
uint64_t procfs_mem_total(void);
uint64_t procfs_mem_free(struct thread *t);

#endif
