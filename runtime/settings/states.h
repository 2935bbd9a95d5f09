/*
 * vmrun --states PID.
 */
#ifndef VMRUN_STATES_H
#define VMRUN_STATES_H

/* Prints vCPU and thread states of the vmrun with that process id to stdout; returns the exit
 * status. */
int states_print(const char *pid);

#endif
