/*
 * vmrun --check.
 */
#ifndef VMRUN_CHECK_H
#define VMRUN_CHECK_H

/* Prints the report, tries the nodes of opt; returns the exit status. */
int check_report(void);

#endif
