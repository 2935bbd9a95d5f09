/*
 * The virtual machine: KVM's file descriptors, guest-physical memory, vCPUs.
 */
#ifndef VMRUN_VM_H
#define VMRUN_VM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "vm/thread.h"

/* Functions of the layers above that the VM calls.  Set once, by main.c. */
struct vm_calls {
        /* Answers one exit of kern: exit_serve() (exits.c). */
        int64_t (*serve)(struct thread *t);
        /* Mask of the signals that may end the program although t holds all back
         * (signal/signals.h). */
        uint64_t (*deadly)(struct thread *t);
        /* The program's byte at addr, or -1 if there is no page. */
        int (*peek)(struct thread *t, uint64_t addr);
        /* Has a thread of the first process's PID namespace kick u (process/service.h). */
        void (*kick)(struct thread *u);
        /* Has the service vCPU look at what the host changed, if it sleeps. */
        void (*wake_service)(void);
};

struct vm {
        const struct vm_calls *calls;   /* NULL: the VM of vm_probe_level() */
        int kvm_fd, fd;                 /* private fds */
        int run_size;                   /* bytes of a vCPU's struct kvm_run mapping */
        int level;                      /* privilege level p of program and kern: 0 or 3 */
        unsigned phys_bits;             /* that the guest's memory may use */
        uint64_t xcr0;
        bool xsave2;                    /* KVM_GET_XSAVE2 exists, */
        /* and this is the size of the area in bytes: 4096 or more */
        uint32_t xsave_size;
        bool fsgsbase;                  /* CR4.FSGSBASE may be set */
        /* It says which vCPUs the host does not run, and flushes their TLBs for kern. */
        bool flushes;
        struct kvm_cpuid2 *cpuid;

        pthread_mutex_t lock;           /* guards the next four */
        uint32_t next_slot;             /* KVM memory slots in use, */
        uint32_t slot_room;             /* room for them in the array, */
        struct kvm_userspace_memory_region *slot;       /* and what they are, for vm_back() */
        uint64_t next_gpa;              /* first unused address above RAM, for far tiers */
        /* by vCPU number; written once, before the vCPU counts in control.nvcpus */
        struct thread *thread[VCPUS_MAX];
        unsigned vcpus_max;             /* what KVM allows, at most VCPUS_MAX */
};

/* CS after a triple fault on SVM: KVM has reset the vCPU, and the program's registers are gone. */
#define RESET_CS 0xf000

#endif
