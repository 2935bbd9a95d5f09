/*
 * /proc as the program must see it: itself where the host shows vmrun.
 */
#ifndef VMRUN_PROCFS_H
#define VMRUN_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "marshal/proc_path.h"
#include "vm/thread.h"

struct image;
/* What was loaded: where strings, code and data are, and the auxiliary vector.  Copied. */
void procfs_set_image(const struct image *im);

/*
 * Opens a file of /proc that vmrun writes itself.  true: *ret is a new fd or -errno.  false: not
 * one of those; open it as procfs_follow says.
 */
bool procfs_open(struct thread *t, int dirfd, const char *path, int flags, long *ret);

/* PROCFS_MAPS: what getdents (or getdents64) gives from where fd stands, or -errno.
 * (procfs_maps.c) */
long procfs_list_maps(struct thread *t, int fd, bool is64, char *buf, size_t room);
/* /proc/self/mem. (procfs_mem.c)  A new fd, or -errno; is fd one of those; and what is read or
 * written there, at *pos or the descriptor's own position. */
struct sys_iov;
long procfs_mem_open(struct thread *t, int flags);
int procfs_mem_make(void);              /* what that needs, before a vfork: 0 or -errno */
bool procfs_mem_is_(int fd);
extern _Atomic bool procfs_mem_exists;
static inline bool procfs_mem_is(int fd) { return procfs_mem_exists && procfs_mem_is_(fd); }
long procfs_mem_rw(struct thread *t, int fd, const struct sys_iov *v, const int64_t *pos,
                   bool write);
long procfs_mem_seek(int fd, int64_t off, unsigned whence);
int procfs_mem_map(int fd);             /* what mmap says of it: -errno */
void procfs_mem_forked(void);

/* Memory the program has, in bytes: its cache and what the far tiers hold; and what of it is free,
 * approximately. */
uint64_t procfs_mem_total(void);
uint64_t procfs_mem_free(struct thread *t);

#endif
