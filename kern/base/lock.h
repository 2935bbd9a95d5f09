/*
 * Locks between vCPUs.  A taker spins, then yields, since the holder's thread may not be running,
 * then sleeps.
 */
#ifndef VMRUN_LOCK_H
#define VMRUN_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct lock { _Atomic uint32_t v; };    /* enum of lock.c; 0: free */

void lock_take(struct lock *l);
void lock_drop(struct lock *l);

#endif
