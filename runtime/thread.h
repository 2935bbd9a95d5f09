/*
 * A host thread and its vCPU.  Program threads run one each; the service thread runs the cleaner's.
 */
#ifndef VMRUN_THREAD_H
#define VMRUN_THREAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "abi.h"

struct kvm_run;
struct vm;

struct thread {
        struct vm *vm;
        struct vcpu *v;                 /* this vCPU's block, in the window */
        struct kvm_run *run;
        int vcpu_fd;                    /* private fd */
        pid_t tid;
        bool sigmask_dirty;             /* the program changed its mask: tell KVM before the next run */
};

/* Runs kern for one upcall inside the pending exit; returns upcall.ret.  Only from within an exit of kern. (vcpu.c) */
int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2);

#endif
