/*
 * vmrun's own memory files.
 */
#ifndef VMRUN_FAR_MEMFD_H
#define VMRUN_FAR_MEMFD_H

#include <stddef.h>
#include <stdint.h>

/* Makes a sparse memory file of that many bytes, sealed against changes of its size.  Returns its
 * descriptor, which is private (privfd), or -errno with a sentence in why. */
int memfd_make(const char *name, uint64_t bytes, char *why, size_t n);
/* As memfd_make(), but the descriptor is not private: close-on-exec, the lowest number. */
int memfd_open(const char *name, uint64_t bytes, char *why, size_t n);

/* At vmrun's start, and after execve: a private descriptor of /proc; -1: it is not mounted.  The
 * program may change its root later. */
void memfd_init(int proc);
int memfd_proc(void);
/* Opens the file of a descriptor again, for reading: private, with locks of its own.  -errno;
 * -ENOSYS: /proc was not mounted when vmrun started. */
int memfd_again(int fd);

#endif
