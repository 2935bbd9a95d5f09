/*
 * The program's threads: making them, and their end.
 *
 * Each thread is a host thread with a vCPU.  Tid, mask, name, affinity and all other attributes
 * that the host kernel keeps are those of the host thread.  KVM cannot destroy a vCPU, so vCPUs
 * outlive their threads and are reused.
 */
#ifndef VMRUN_THREADS_H
#define VMRUN_THREADS_H

#include <sys/types.h>
#include "vm/stop.h"

/* The first thread, on vCPU 0, exists from the start. */
void threads_init(struct thread *first);

/* threads_take_vcpu() returns a vCPU for one more thread, idle until now or new, and enters it into
 * the list of threads; NULL: there can be no more.  threads_return_vcpu() gives it back if the
 * thread could not be started. */
struct thread *threads_take_vcpu(void);
void threads_return_vcpu(struct thread *t);

/* Does what the kernel does for a thread that ends, for data that vmrun keeps: robust locks,
 * CLEARTID. */
void threads_let_go(struct thread *t);
/* t ends with that status.  Returns 0, and thread_loop() then returns: only t ends if other threads
 * continue, otherwise the program does.  Or -SYS_PUT_OFF. */
long threads_end(struct thread *t, int status);
/* Called after thread_loop(): gives t and its vCPU back, so the caller must not use t any more.
 * Does not return if t is the first thread. */
void threads_gone(struct thread *t);

/* In a child that t has just forked, with all other threads stopped: t is the child's only thread
 * and its leader, and will get vCPU 0.  No thread counts as stopped any more. */
void threads_forked(struct thread *t);
/* The program ends, with all threads but t stopped: handles the locks that they hold, as for ending
 * threads. */
void threads_end_robust_lists(struct thread *t);
/* A thread's CPUs have changed: tells kern whether all threads, vmrun's own too, have one CPU. */
void threads_count_cpus(void);
/* Has the program only this thread?  Waits for a thread that is ending, at most a second. */
bool threads_single(void);

#endif
