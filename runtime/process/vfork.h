/*
 * vfork: a child process that shares its parent's address space until it executes another program
 * or ends.
 */
#ifndef VMRUN_VFORK_H
#define VMRUN_VFORK_H

#include "process/start.h"

/* Makes a child as rq says (CLONE_VM and CLONE_VFORK are set).  Returns its pid once it has
 * executed another program or ended; -errno; -SYS_PUT_OFF. */
long vfork_make(struct thread *t, const struct clone_request *rq);

/* In a child: has the pending exit served and answered by the thread that has lent its vCPU.
 * False: the caller must serve it, because it is that thread, or its lender is gone. */
bool vfork_ask(struct thread *t);

#endif
