/*
 * Instructions that never end: see stuck.c.
 */
#ifndef VMRUN_STUCK_H
#define VMRUN_STUCK_H

#include <stdbool.h>

/* This vCPU's fault on an access of the program has waited for a frame, and is over.  True: the
 * instruction that it is for needs more frames at once than can be freed. */
bool is_stuck(void);

#endif
