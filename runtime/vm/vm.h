/*
 * The virtual machine: KVM's file descriptors, guest-physical memory, vCPUs.
 */
#ifndef VMRUN_VM_H
#define VMRUN_VM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "vm/thread.h"

/* What the VM asks of what is built on it. Set once, by main.c. */
struct vm_calls {
        /* Answers one exit of kern's. */
        int64_t (*serve)(struct thread *t);
        /* Signals that may end the program although t holds all back: a mask (signals.h). */
        uint64_t (*deadly)(struct thread *t);
        /* The byte of the program's at addr, or -1 where no page is. */
        int (*peek)(struct thread *t, uint64_t addr);
        /* Has u kicked by a thread of the first process's PID namespace (service.h). */
        void (*kick)(struct thread *u);
};

struct vm {
        const struct vm_calls *calls;   /* NULL: none of the program's code has run yet */
        int kvm_fd, fd;                 /* private fds */
        int run_size;                   /* bytes of a vCPU's struct kvm_run mapping */
        int level;                      /* privilege level p of program and kern: 0 or 3 */
        unsigned phys_bits;
        uint64_t xcr0;
        bool xsave2;                    /* KVM_GET_XSAVE2 is there, */
        uint32_t xsave_size;            /* and the area has so many bytes: 4096 or more */
        bool fsgsbase;                  /* CR4.FSGSBASE may be set */
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

/* What has to be known before guest RAM is laid out. */
struct vm_config {
        uint64_t nframes;               /* cache, in pages */
        uint64_t far_pages;             /* what far tiers may ask page tables for, in pages */
};

/* After execve: a private descriptor of /dev/kvm, which this process may have no right any more to
 * open. */
void vm_use_device(int fd);
/* Opens KVM and makes an empty VM.  0, or -errno with why. */
int vm_open(struct vm *vm, char *why, size_t n);
/* Has KVM refuse the program RDMSR and WRMSR in ring 0 too, as Linux does.  No effect on a KVM that
 * cannot (before Linux 5.10). */
void vm_refuse_msrs(struct vm *vm);
/* A KVM VM in place of the one before, without vCPUs and memory slots. 0, or -errno with why. */
int vm_make_again(struct vm *vm, char *why, size_t n);
/* Lays out guest RAM in the window and CONTROL, with kern's image in place.  After vm_open. */
int vm_make_ram(struct vm *vm, const struct vm_config *c, char *why, size_t n);
/* Fills in the page tables of the window for vm->level, anew if they exist. */
void vm_map_window(struct vm *vm);
/* Releases all of it. */
void vm_close(struct vm *vm);
/* In a forked child, where vm is the parent's, which is of no use in another address space: lets go
 * of it and its vCPUs, and makes an empty VM of the same kind in its place. */
int vm_renew(struct vm *vm, char *why, size_t n);

/* Lets go of the VM and its vCPUs, with guest memory left where it is; makes both again, but for
 * the vCPUs, which come by vcpu_bring_back(). Nobody else uses any of it meanwhile.  (alone.c) */
void vm_away(struct vm *vm);
int vm_back(struct vm *vm, char *why, size_t n);

/* Bytes of guest-physical space left for far tiers. */
uint64_t vm_gpa_room(const struct vm *vm, uint64_t nframes);

/* The first guest-physical address of the arena (arena.h); what lies below is for RAM and far
 * tiers. From CONTROL->phys_bits. */
uint64_t arena_gpa_base(void);

/* Adds one KVM memory slot; never deleted.  size: a multiple of 4 KiB. */
int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size);
/* Hands out guest-physical space, 2 MiB-aligned, for a far tier; 0 when it is used up. */
uint64_t vm_take_gpa(struct vm *vm, uint64_t size);
/* EXIT_GROW_POOL: backs another size bytes of the pool. */
int64_t vm_grow_pool(struct vm *vm, uint64_t size);

/* Makes vCPU `number` with its block, at vm->level, ready to start in kern.  t, zeroed, is filled
 * in. */
int vcpu_create(struct vm *vm, struct thread *t, uint32_t number, enum vcpu_role role, char *why,
                size_t n);
/* Makes a vCPU that has run before ready to start in kern again.  0 or -errno. */
int vcpu_reset(struct thread *t, enum vcpu_role role);
/* Starts vCPU 0 and finds the privilege level by asking: p = 0, else p = 3.  Afterwards kern waits
 * in EXIT_READY. */
int vcpu_start_first(struct vm *vm, struct thread *t, char *why, size_t n);
/* The same where the level is known: vm->level. */
int vcpu_start_known(struct vm *vm, struct thread *t, char *why, size_t n);
/* The privilege level that programs run at here, found with a VM of its own: 0, 3, or -errno with
 * why. */
int vm_probe_level(char *why, size_t n);
void vcpu_destroy(struct thread *t);
/* What KVM knows of a vCPU that waits in an exit, or has no thread; and the same vCPU in another VM
 * (vm_back), which goes on there. */
struct vcpu_kept;
struct vcpu_kept *vcpu_keep(struct thread *t);
int vcpu_bring_back(struct thread *t, struct vcpu_kept *k, char *why, size_t n);

/*
 * Has the program, in ring 0, changed registers that are vmrun's: control registers, descriptor
 * tables, segments?  Sets them right then. The vCPU does not run, and no exit of KVM's is
 * unfinished.  p = 0 only.
 */
bool vcpu_mend(struct thread *t);
/* What KVM was about to inject, or has injected, is over. */
void vcpu_forget_exception(struct thread *t);

/* Runs the vCPU until kern asks for something (v->exit); serves kicks and the end of the program by
 * itself. (vcpu.c) */
void vcpu_run(struct thread *t);
/* One KVM_RUN for the probe: 0 if kern exited, else -errno. */
int vcpu_try_run(struct thread *t);
/* Runs t and has what kern asks for answered, until t->end says how it ends. */
void thread_loop(struct thread *t);
/* Its answer will not come by itself any more: lets KVM finish the exit, so that registers can be
 * set. */
void vcpu_retire(struct thread *t);
/* A vCPU that ran the program when its host thread was killed (vfork.c) continues in kern, at the
 * latest with an EXIT_EVENT. */
void vcpu_redirect(struct thread *t);
/* What to say of a guest in a state that makes no sense. */
#define VM_BLAME                                                                                 \
        "this is a bug in vmrun, or the program may have written into kern or changed the CPU's " \
        "tables: they share a privilege level"

/* Registers and page-table walk of a vCPU on vmrun's stderr, for a state that makes no sense.
 * (dump.c) */
void vcpu_dump(struct thread *t);

/* An address that kern gave: in the window, or in its own vCPU block.  NULL if it is neither, or
 * [va, va+len) leaves it. */
void *kern_pointer(struct thread *t, uint64_t va, uint64_t len);

/* CONTROL->time. (time.c) */
void time_init(struct thread *t);
/* Another vCPU, which has just been made, gets the clock of the first.  Without effect on its first
 * run: call it before. */
void time_join(struct thread *t, const struct thread *first);
/* The clock of a vCPU, and the same for one that takes its place.  False: there is no way to tell
 * it, so reading the time exits from now on. */
bool time_keep(const struct thread *t, uint64_t *offset);
void time_bring_back(struct thread *t, bool known, uint64_t offset);
/* In EXIT_READY: has its clock become that?  If not, reading the time exits from now on. */
void time_check(const struct thread *t);
void time_refresh(void);

/* The kick signal: SIGSTKFLT, which Linux never sends. */
#define KICK_SIGNAL 16
#define KICK_CODE   (-4000)             /* si_code: no other sender has it */
void vcpu_kick(struct thread *t);
/* Is what came to t, or to its queue, a kick, and not the program's own signal of that number? */
bool vcpu_is_kick(struct thread *t, const siginfo_t *info);

#endif
