/*
 * System calls that kern does not serve itself: performed on the host thread that owns the vCPU.
 *
 * To the host kernel the host thread is the program's thread (tid, fds, cwd, credentials, masks),
 * so a call is made unchanged, with its own number; only pointers are replaced.  A call that its
 * row describes runs in three phases (marshal/generic.c): collect copies arguments in and has no
 * side effects, perform makes the call once, deliver copies results out and never repeats the call.
 */
#ifndef VMRUN_DISPATCH_H
#define VMRUN_DISPATCH_H

#include <stdint.h>
#include "vm/thread.h"

/* args: rdi rsi rdx r10 r8 r9.  Returns the value for rax: a result or -errno, or -SYS_PUT_OFF.
 * Only from within EXIT_SYSCALL. */
long syscall_forward(struct thread *t, long nr, const uint64_t args[6]);

struct stats;
/* For stats_register(): calls of all threads, by name. */
void syscall_stats(struct stats *s);

#endif
