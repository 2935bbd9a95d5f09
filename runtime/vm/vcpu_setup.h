/*
 * vCPUs: made, ended, and saved for another VM.
 */
#ifndef VMRUN_VM_VCPU_SETUP_H
#define VMRUN_VM_VCPU_SETUP_H

#include "vm/vm.h"

/* Makes vCPU `number` with its block, at vm->level, ready to start in kern.  t, zeroed, is filled
 * in. */
int vcpu_create(struct vm *vm, struct thread *t, uint32_t number, enum vcpu_role role, char *why,
                size_t n);
/* Makes a vCPU that has run before ready to start in kern again.  0 or -errno. */
int vcpu_reset(struct thread *t, enum vcpu_role role);
void vcpu_destroy(struct thread *t);
/* vcpu_keep() saves KVM's state of a vCPU that waits in an exit or has no thread; vcpu_bring_back()
 * makes the same vCPU in another VM (vm_back), where it continues. */
struct vcpu_kept;
struct vcpu_kept *vcpu_keep(struct thread *t);
int vcpu_bring_back(struct thread *t, struct vcpu_kept *k, char *why, size_t n);

/*
 * Has the program, in ring 0, changed registers that belong to vmrun: control registers, descriptor
 * tables, segments?  If so, restores them.  The vCPU does not run, and no KVM exit is unfinished.
 * p = 0 only.
 */
bool vcpu_mend(struct thread *t);
/* The pending exit will not be answered by running on: lets KVM finish it, so that registers can be
 * set. */
void vcpu_retire(struct thread *t);

#endif
