/*
 * The fault path, for callers that want pages without an access by the program.
 */
#ifndef VMRUN_FAULT_H
#define VMRUN_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include "abi_guide.h"

/* #PF: the address is in vcpu.cr2, the error code in vcpu.regs.  entry/entry.S calls it. */
void page_fault(void);

/* The guide that runs on this vCPU is over: the fault that it ran for continues (paging/guide.h).
 * The thread's registers are in vcpu.regs then, or, after GUIDE_RETURNED, the registers of its next
 * guide.  The way back is return_iret. */
void fault_guide_over(enum guide_end how);

/* Faults pages in, as an access by the program would.  It publishes the faults itself.  The caller
 * holds no lock.  write: for write access.  0; -ENOMEM: no memory; -EFAULT: a signal would
 * be raised. */
int fault_in(uint64_t start, uint64_t end, bool write);
/* fault_in() for a system call.  It may take hours; threads can be stopped meanwhile. */
int fault_in_all(uint64_t start, uint64_t end, bool write);

#endif
