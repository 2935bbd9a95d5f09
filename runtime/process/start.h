/*
 * A thread of the program, from its clone() to its first instruction.
 */
#ifndef VMRUN_THREADS_START_H
#define VMRUN_THREADS_START_H

#include <stdint.h>
#include "vm/thread.h"

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ull
#endif

/* A request of clone() or clone3(), with its arguments read. */
struct clone_request {
        uint64_t flags;                 /* CLONE_*, without the exit signal */
        int exit_signal;
        uint64_t stack;                 /* the upper end; 0: the caller's stack */
        uint64_t tls, parent_tid, child_tid, pidfd;
};

/* Makes a thread of the program as rq says, which begins where t's system call returns.  Its tid,
 * or -errno (-EAGAIN: no vCPU, or the cache is too small for one more), or -SYS_PUT_OFF. */
long threads_make(struct thread *t, const struct clone_request *rq);

#endif
