/*
 * vfork: a child process that borrows its parent's memory until it executes another program or
 * ends.
 */
#ifndef VMRUN_VFORK_H
#define VMRUN_VFORK_H

#include "process/threads.h"

/* A child as rq says (CLONE_VM and CLONE_VFORK are set).  Its pid once it has executed another
 * program or ended; -errno; -SYS_PUT_OFF. */
long vfork_make(struct thread *t, const struct clone_request *rq);


#endif
