/*
 * Running a vCPU: exits of kern, and kicks.
 */
#ifndef VMRUN_VM_VCPU_H
#define VMRUN_VM_VCPU_H

#include "vm/vm.h"

/* Makes KVM forget the exception that it was about to inject, or has injected. */
void vcpu_forget_exception(struct thread *t);

/* Runs the vCPU until kern makes an exit (v->exit); handles kicks and the end of the program
 * itself. */
void vcpu_run(struct thread *t);
/* KVM_RUN for the probe: 0 if kern exited, else -errno. */
int vcpu_try_run(struct thread *t);
/* Answers the exit that kern waits in.  [I] exit.op is EXIT_NONE from then on, until kern makes the
 * next one: so an exit without an answer can be told, even if the thread that served it was killed
 * (process/vfork.c). */
void thread_answer(struct thread *t, int64_t ret);
/* Runs t and has kern's exits answered, until t->end says how it ends. */
void thread_loop(struct thread *t);
/* Makes a vCPU that ran the program when its host thread was killed (process/vfork.c) continue in
 * kern; an EXIT_EVENT comes at the latest. */
void vcpu_redirect(struct thread *t);
/* Converts an address from kern: in the window, or in its own vCPU block.  NULL if it is in
 * neither, or [va, va+len) leaves it. */
void *kern_pointer(struct thread *t, uint64_t va, uint64_t len);

/* The kick signal: SIGSTKFLT, which Linux never sends. */
#define KICK_SIGNAL 16
#define KICK_CODE   (-4000)             /* si_code: no other sender has it */
void vcpu_kick(struct thread *t);
/* Is a signal that came to t, or to its queue, a kick, and not the program's own signal of that
 * number? */
bool vcpu_is_kick(struct thread *t, const siginfo_t *info);

#endif
