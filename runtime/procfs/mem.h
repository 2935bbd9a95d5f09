/*
 * /proc/self/mem: the program's memory as a file.
 */
#ifndef VMRUN_PROCFS_MEM_H
#define VMRUN_PROCFS_MEM_H

#include <stdbool.h>
#include <stdint.h>

struct sys_iov;
struct thread;

/* Opens it: a new fd, or -errno. */
long procfs_mem_open(struct thread *t, int flags);
/* makes the file that it needs, before a vfork: 0 or -errno */
int procfs_mem_make(void);
/* Is fd such a descriptor? */
bool procfs_mem_is_(int fd);
extern _Atomic bool procfs_mem_exists;
static inline bool procfs_mem_is(int fd) { return procfs_mem_exists && procfs_mem_is_(fd); }
/* Reads or writes, at *pos or at the descriptor's own position. */
long procfs_mem_rw(struct thread *t, int fd, const struct sys_iov *v, const int64_t *pos,
                   bool write);
long procfs_mem_seek(int fd, int64_t off, unsigned whence);
int procfs_mem_map(int fd);             /* mmap's error for it: -errno */
void procfs_mem_forked(void);

#endif
