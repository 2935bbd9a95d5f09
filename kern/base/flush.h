/*
 * TLB flushes of all vCPUs.  flush.c also provides the pager's env_flush_*.
 */
#ifndef VMRUN_FLUSH_H
#define VMRUN_FLUSH_H

#include <stdint.h>

/* Waits until every vCPU has flushed since env_flush_begin() gave this epoch.  Kicks vCPUs that run
 * program code. */
void flush_wait(uint64_t epoch);

/* Flushes this vCPU's own TLB and notes the epoch it has reached. */
void flush_self(void);

#endif
