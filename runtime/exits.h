/*
 * The end of a program, by itself or by a signal.
 */
#ifndef VMRUN_EXITS_H
#define VMRUN_EXITS_H

#include <stdint.h>
#include "thread.h"

/* What is told at the end of a program: statistics, leak check, which ends vmrun where it fails.  Only from within an exit of kern. */
void program_report(struct thread *t);
/* The program ends, all its other threads being stopped: lets go of far memory. */
void program_goodbye(void);
/* Ends vmrun as the program ends: statistics, leak check, exit status. */
_Noreturn void program_exit(struct thread *t, int status);
/* Ends vmrun by the signal that ends the program.  Only from within an exit of kern, like the above. */
_Noreturn void program_killed(struct thread *t, int signo, int code, uint64_t addr);

#endif
