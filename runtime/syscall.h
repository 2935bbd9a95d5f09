/*
 * System calls that kern does not serve itself: performed on the host thread that owns the vCPU.
 *
 * The host thread is the program's thread as far as the host kernel is concerned (tid, fds, cwd, credentials, masks),
 * so a call is made as it stands, with its own number; what changes is where pointers point.  Each call runs in three
 * phases: collect copies arguments in and has no side effects, perform makes the call once, deliver copies results out
 * and never repeats it.
 */
#ifndef VMRUN_SYSCALL_H
#define VMRUN_SYSCALL_H

#include <stdint.h>
#include "thread.h"

#define SYSCALL_COUNTS 512

/* args: rdi rsi rdx r10 r8 r9.  Returns the value for rax: a result or -errno.  Only from within EXIT_SYSCALL.
 * -SYS_PUT_OFF: a signal came first and the call had no effect; the program makes it (again) after its handler. */
#define SYS_PUT_OFF 512                 /* no errno that a program can see */
long syscall_forward(struct thread *t, long nr, const uint64_t args[6]);

/* Calls made, by number, of all threads.  The last element counts numbers beyond the array. */
extern uint64_t syscall_counts[SYSCALL_COUNTS];

/* The name of a call, or NULL for a number Linux 6.1 does not have. */
const char *syscall_name(long nr);

/* May this call sleep without a bound? (for whoever must know if a thread comes back soon) */
bool syscall_may_block(long nr);

/* The thread ends: gives its buffers back. */
void syscall_thread_end(void);

#endif
