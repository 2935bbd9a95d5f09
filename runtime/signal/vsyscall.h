/*
 * The vsyscall page: three calls at fixed addresses, by which programs asked for the time before
 * there was a vDSO.  Go before 1.16 and old static libcs still do.  As Linux does today, the page
 * cannot be read, and each call is carried out by the fault of the jump to it.
 */
#ifndef VMRUN_VSYSCALL_H
#define VMRUN_VSYSCALL_H

#include <stdbool.h>

struct thread;
struct trapped;

/* After a page fault of the program.  True: it was such a call, and the program continues behind
 * it.  False: *x is the fault to report.  It has changed if the jump led into the page where no
 * call begins, or if a call has a bad pointer.  In EXIT_SIGNAL, all signals held. */
bool vsyscall_carried_out(struct thread *t, struct trapped *x);

#endif
