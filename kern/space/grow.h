/*
 * Stacks, and other VMAs that grow down when they are touched.
 */
#ifndef VMRUN_GROW_H
#define VMRUN_GROW_H

#include <stdint.h>

/* Grows a MAP_GROWSDOWN VMA (or the stack) down to addr, under Linux's rules (rlimit_stack, guard
 * gap of 256 pages, commit limit).  Takes mm_lock; the caller publishes no fault.  0: look again;
 * -EFAULT: no such VMA; -ENOMEM. */
int mm_grow_stack(uint64_t addr);

#endif
