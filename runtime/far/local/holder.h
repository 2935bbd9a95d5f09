/*
 * Who holds the lock of a tier that is one process tree's at a time.
 */
#ifndef VMRUN_FAR_HOLDER_H
#define VMRUN_FAR_HOLDER_H

#include <stddef.h>

/* After flock() of fd failed with EWOULDBLOCK: "process 123 (redis-server)", "another node of this
 * vmrun", or "another program" where the kernel does not tell, as for one in another PID
 * namespace. */
const char *lock_holder(int fd, char *text, size_t n);

#endif
