/*
 * fork: a child that is a real process of the host, with a VM of its own (docs/architecture.md, "The life of a fork").
 */
#ifndef VMRUN_FORK_RUN_H
#define VMRUN_FORK_RUN_H

#include <stdint.h>
#include "thread.h"

/* As to clone(2), without CLONE_VM. */
struct fork_args {
        uint64_t flags;                 /* CLONE_*, the exit signal in the lowest byte */
        uint64_t stack;                 /* the child's stack pointer; 0: the parent's */
        uint64_t parent_tid, child_tid; /* where to store them, in the program's memory, if flags say so */
        uint64_t pidfd;                 /* the same */
        uint64_t tls;
};

/* The child's pid in the parent, 0 in the child, which returns on the very same host stack; -errno; -SYS_PUT_OFF: a signal, or another
 * thread that stops everybody, comes first, then the call is to be made again. */
long fork_process(struct thread *t, const struct fork_args *a);

#endif
