/*
 * A vCPU in an impossible state, on standard error.
 */
#ifndef VMRUN_VM_DUMP_H
#define VMRUN_VM_DUMP_H

#include "vm/vm.h"

/* The words for a guest in an impossible state. */
#define VM_BLAME                                                                                 \
        "this is a bug in vmrun, or the program may have written into kern or changed the CPU's " \
        "tables: they share a privilege level"
/* Prints registers and a page-table walk of a vCPU on vmrun's stderr, for an impossible state. */
void vcpu_dump(struct thread *t);

#endif
