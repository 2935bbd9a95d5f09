/*
 * Processes under vmrun: a call changes neither their memory nor the limits that their vmruns keep.
 */
#ifndef VMRUN_SYSCALLS_LIMITS_H
#define VMRUN_SYSCALLS_LIMITS_H

#include <stdbool.h>

/* Is process pid another program under vmrun? */
bool sys_under_vmrun(int pid);

#endif
