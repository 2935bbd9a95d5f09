/*
 * fork: a child that is a real process of the host, with a VM of its own (docs/architecture.md,
 * "The life of a fork").
 */
#ifndef VMRUN_FORK_RUN_H
#define VMRUN_FORK_RUN_H

#include "process/start.h"

/* clone() without CLONE_VM.  The child's pid in the parent; 0 in the child, which returns on the
 * same host stack; -errno; -SYS_PUT_OFF: a signal comes first, and the call must be made again
 * after it. */
long fork_process(struct thread *t, const struct clone_request *rq);

#endif
