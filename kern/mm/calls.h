/*
 * The memory system calls.  a: the six arguments; the result is that of the system call.
 */
#ifndef VMRUN_CALLS_H
#define VMRUN_CALLS_H

#include <stdint.h>

long sys_brk(const uint64_t a[6]);
long sys_mmap(const uint64_t a[6]);
long sys_munmap(const uint64_t a[6]);
long sys_mprotect(const uint64_t a[6]);
long sys_mremap(const uint64_t a[6]);
long sys_madvise(const uint64_t a[6]);
long sys_mincore(const uint64_t a[6]);
long sys_msync(const uint64_t a[6]);
long sys_mlock(const uint64_t a[6]);
long sys_mlock2(const uint64_t a[6]);
long sys_munlock(const uint64_t a[6]);
long sys_mlockall(const uint64_t a[6]);
long sys_munlockall(const uint64_t a[6]);
long sys_shmat(const uint64_t a[6]);
long sys_shmdt(const uint64_t a[6]);

#endif
