/*
 * The privilege level of program and kern, and VMs that take the place of another.
 */
#ifndef VMRUN_VM_LEVEL_H
#define VMRUN_VM_LEVEL_H

#include "vm/vm.h"

/* Starts vCPU 0 and finds the privilege level by trying: p = 0, else p = 3.  Afterwards kern waits
 * in EXIT_READY. */
int vcpu_start_first(struct vm *vm, struct thread *t, char *why, size_t n);
/* vcpu_start_first() with a known level, vm->level. */
int vcpu_start_known(struct vm *vm, struct thread *t, char *why, size_t n);
/* The privilege level at which programs run on this host, found with a separate VM: 0, 3, or -errno
 * with why. */
int vm_probe_level(char *why, size_t n);
/* In a forked child, where vm is the parent's VM, which cannot be used in another address space:
 * closes it and its vCPUs, and makes an empty VM like it in its place. */
int vm_renew(struct vm *vm, char *why, size_t n);

/* vm_away() closes the VM and its vCPUs; guest memory stays where it is.  vm_back() makes the VM
 * again; vcpu_bring_back() makes the vCPUs.  No other thread uses the VM meanwhile.
 * (process/alone.c) */
void vm_away(struct vm *vm);
int vm_back(struct vm *vm, char *why, size_t n);

#endif
