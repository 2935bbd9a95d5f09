/*
 * The end of a thread and of the program.
 */
#ifndef VMRUN_END_H
#define VMRUN_END_H

#include "vm/thread.h"

/* Called after thread_loop(), with the exit still pending: carries out t->end. Returns only if just
 * this thread has ended, and it was not the first: t may then already belong to another thread. */
void thread_finish(struct thread *t);

/* The reports of a program that executes another: statistics, and the leak check, which ends vmrun
 * if it fails. Only from within an exit of kern. */
void program_executes(struct thread *t);
/* The program ends and all its other threads are stopped: releases far memory. */
void program_goodbye(void);

#endif
