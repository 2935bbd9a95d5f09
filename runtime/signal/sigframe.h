/*
 * A signal's frame on the program's stack, as Linux x86-64 lays it out.
 */
#ifndef VMRUN_SIGFRAME_H
#define VMRUN_SIGFRAME_H

#include <stdint.h>
#include "vm/thread.h"

/* The kernel's own struct sigaction. */
struct ksigaction { uint64_t handler, flags, restorer, mask; };

/* Makes the frame and points regs at the handler; rt_sigreturn will restore mask.  0, or -EFAULT:
 * nothing has changed. Only from within an exit of kern, and only where the return to the program
 * is by iretq (abi_vcpu.h, EVENT_IRET). */
int sigframe_push(struct thread *t, const struct ksigaction *k, const siginfo_t *info,
                  uint64_t mask);

/* Restores the state in the frame on top of the stack; its signal mask goes to *mask. 0, or
 * -EFAULT: state that could not be restored is unchanged. */
int sigframe_pop(struct thread *t, uint64_t *mask);

/* sigaltstack(); new or old may be NULL.  0 or -errno. */
int sigframe_altstack(struct thread *t, const struct altstack *new, struct altstack *old);

#endif
