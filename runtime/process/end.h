/*
 * The end of a thread and of the program.
 */
#ifndef VMRUN_END_H
#define VMRUN_END_H

#include "vm/thread.h"

/* After thread_loop(), the exit still pending: carries out t->end. Returns only if the thread alone
 * has ended, and was not the first: t may then be another thread's already. */
void thread_finish(struct thread *t);

/* What is told at the end of a program: statistics, leak check, which ends vmrun where it fails.
 * Only from within an exit of kern. */
void program_report(struct thread *t);
/* The program ends, all its other threads being stopped: releases far memory. */
void program_goodbye(void);

#endif
