/*
 * The program's threads: making one, its end, stopping all others.
 *
 * One thread is one host thread with its vCPU.  Tid, mask, name, affinity and what else the host
 * kernel knows of a thread are the host thread's own.  vCPUs outlive their threads, for KVM cannot
 * give one back: they are used again.
 */
#ifndef VMRUN_THREADS_H
#define VMRUN_THREADS_H

#include <sys/types.h>
#include "vm/stop.h"

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ull
#endif

/* What clone() and clone3() ask for, their arguments read. */
struct clone_request {
        uint64_t flags;                 /* CLONE_*, without the exit signal */
        int exit_signal;
        uint64_t stack;                 /* its upper end; 0: the caller's own */
        uint64_t tls, parent_tid, child_tid, pidfd;
};

/* The first thread, vCPU 0's, is there from the start. */
void threads_init(struct thread *first);

/* A thread of the program as rq says, which begins where t's system call returns.  Its tid, or
 * -errno (-EAGAIN: no vCPU, or a cache too small for one more), or -SYS_PUT_OFF. */
long threads_make(struct thread *t, const struct clone_request *rq);

/* A vCPU for one more thread, idle until now or new, and among the program's threads from now on;
 * NULL: there can be no more. The second gives it back where the thread did not come to be. */
struct thread *threads_take_vcpu(void);
void threads_return_vcpu(struct thread *t);

/* What the kernel does for a thread that ends, for one whose lists are kept here: robust locks,
 * CLEARTID. */
void threads_let_go(struct thread *t);
/* t ends with that status.  Returns 0 if others go on, and thread_loop() then returns; otherwise
 * the program ends.  Or -SYS_PUT_OFF. */
long threads_end(struct thread *t, int status);
/* After thread_loop(): gives t with its vCPU back, so the caller may not look at it any more.  Does
 * not return to the first thread. */
void threads_gone(struct thread *t);

/* In a child that was just forked by t, all others being stopped: t is its only thread, and the
 * leader, with vCPU 0 to come; nobody is stopped any more. */
void threads_forked(struct thread *t);
/* The program ends, all but t being stopped: what ending threads do for locks that they hold. */
void threads_end_robust_lists(struct thread *t);
/* Has the program this one thread?  One that is on its way out is waited for, a second at most. */
bool threads_single(void);

#endif
