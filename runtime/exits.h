/*
 * What kern asks for.
 */
#ifndef VMRUN_EXITS_H
#define VMRUN_EXITS_H

#include <stdint.h>
#include "vm/thread.h"

/* Answers the exit that t's vCPU waits in (struct vm_calls, serve). */
int64_t exit_serve(struct thread *t);

#endif
