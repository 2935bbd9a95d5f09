/*
 * Whose limits a call may change: the program's own, or those of other processes.
 */
#ifndef VMRUN_SYSCALLS_LIMITS_H
#define VMRUN_SYSCALLS_LIMITS_H

#include <stdbool.h>

/* Is process pid another program under vmrun? */
bool sys_under_vmrun(int pid);

#endif
