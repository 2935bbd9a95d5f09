/*
 * CONTROL->time: the clock that the program reads without an exit.
 */
#ifndef VMRUN_VM_TIME_H
#define VMRUN_VM_TIME_H

#include "vm/vm.h"

void time_init(struct thread *t);
/* Gives another vCPU, which has just been made, the clock of the first.  Call it before the vCPU's
 * first run. */
void time_join(struct thread *t, const struct thread *first);
/* time_keep() reads the clock of a vCPU; time_bring_back() sets it in the vCPU that replaces it.
 * False: the clock cannot be read or set, so reading the time exits from now on. */
bool time_keep(const struct thread *t, uint64_t *offset);
void time_bring_back(struct thread *t, bool known, uint64_t offset);
/* In EXIT_READY: checks that its clock was set.  If not, reading the time exits from now on. */
void time_check(const struct thread *t);
void time_refresh(void);

#endif
