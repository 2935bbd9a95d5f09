/*
 * The program's threads: making one, its end, stopping all others.
 *
 * One thread is one host thread with its vCPU.  Tid, mask, name, affinity and what else the host kernel knows of a thread are the host
 * thread's own.  vCPUs outlive their threads, for KVM cannot give one back: they are used again.
 */
#ifndef VMRUN_THREADS_H
#define VMRUN_THREADS_H

#include <sys/types.h>
#include "thread.h"

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

/* A thread of the program as rq says, which begins where t's system call returns.  Its tid, or -errno (-EAGAIN: no vCPU, or a cache too small
 * for one more), or -SYS_PUT_OFF. */
long threads_make(struct thread *t, const struct clone_request *rq);

/* What the kernel does for a thread that ends, for one whose lists are kept here: robust locks, CLEARTID. */
void threads_let_go(struct thread *t);
/* t ends with that status.  Returns 0 if others go on, and thread_loop() then returns; otherwise the program ends.  Or -SYS_PUT_OFF. */
long threads_end(struct thread *t, int status);
/* After thread_loop(): gives t with its vCPU back, so the caller may not look at it any more.  Does not return to the first thread. */
void threads_gone(struct thread *t);

/* Stops all other threads of the program where they hold no lock of kern, have no fault under way and touch nothing of the guest: before they
 * go back to the program, or in a call of the host kernel, which goes on meanwhile.  If another thread does the same, this one
 * is stopped first, and may never return. */
void threads_stop(struct thread *t);
void threads_go(void);
/* After threads_stop(), as the last thing before the process or its program ends: only children that borrow its memory go on.  Should it not end,
 * threads_go(). */
void threads_stop_for_good(void);
/* In a child that was just forked by t, all others being stopped: t is its only thread, and the leader, with vCPU 0 to come; nobody is
 * stopped any more. */
void threads_forked(struct thread *t);
/* The program ends, all but t being stopped: what ending threads do for locks that they hold. */
void threads_end_robust_lists(struct thread *t);
/* Frames that the stopped threads hold. */
uint64_t threads_pins(void);

/* Has the program this one thread?  One that is on its way out is waited for, a second at most. */
bool threads_single(void);
/* The program thread with that tid, or NULL.  t: the one that asks. */
struct thread *threads_find(struct thread *t, pid_t tid);

/* In EXIT_EVENT and EXIT_PAUSE: stays here while all are to stop. */
void threads_pause(struct thread *t);

/* Around what may take long on the host and touches nothing of the guest: meanwhile t counts as stopped.  [I] t->safe is stored, full
 * barrier, then threads_stopping is looked at; threads_stop() stores that, full barrier, then looks at t->safe: so either t sees that it must
 * wait, or the other sees that t is not safe. */
extern _Atomic uint32_t threads_stopping;       /* vCPU number + 1 of who stops all; a futex */
void threads_tell_stopper(void);
void threads_wait_to_go(struct thread *t);

static inline void threads_leave(struct thread *t)
{
        atomic_exchange(&t->safe, 1);
        if (atomic_load(&threads_stopping))
                threads_tell_stopper();
}

static inline void threads_return(struct thread *t)
{
        atomic_exchange(&t->safe, 0);
        if (atomic_load(&threads_stopping))
                threads_wait_to_go(t);
}

#endif
