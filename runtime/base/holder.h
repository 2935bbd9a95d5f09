/*
 * Names the process that holds the lock of a tier, which only one process tree may use at a time.
 */
#ifndef VMRUN_HOLDER_H
#define VMRUN_HOLDER_H

#include <stddef.h>

/* After flock() of fd failed with EWOULDBLOCK: "process 123 (redis-server)", "another node of this
 * vmrun", or "another program" if the kernel does not say, as for a process in another PID
 * namespace. */
const char *lock_holder(int fd, char *text, size_t n);

#endif
