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

/* What must be known before guest RAM is laid out. */
struct vm_config {
        uint64_t nframes;               /* cache, in pages */
        uint64_t far_pages;             /* pages of far tiers that may need page tables */
        bool profile;                   /* there is to be a fault profile */
        uint64_t extra;                 /* bytes of room behind the cache (recorded.h) */
        /* In a forked child, else NULL: what the parent's VMAs say of the arena stays true, and so
         * does what nodes that are added may hold. */
        const struct control *parent;
};

/* After execve: uses a private descriptor of /dev/kvm, which this process may no longer have the
 * right to open. */
void vm_use_device(int fd);
/* Opens KVM and makes an empty VM.  0, or -errno with why. */
int vm_open(struct vm *vm, char *why, size_t n);
/* Makes KVM refuse the program RDMSR and WRMSR in ring 0 too, as Linux does.  No effect with a KVM
 * before Linux 5.10. */
void vm_refuse_msrs(struct vm *vm);
/* Makes a KVM VM in place of the old one, without vCPUs and memory slots.  0, or -errno with
 * why. */
int vm_make_again(struct vm *vm, char *why, size_t n);
/* Lays out guest RAM in the window and CONTROL, with kern's image in place.  After vm_open. */
int vm_make_ram(struct vm *vm, const struct vm_config *c, char *why, size_t n);
/* Fills in the page tables of the window for vm->level, again if they exist. */
void vm_map_window(struct vm *vm);
/* Releases all of it. */
void vm_close(struct vm *vm);
/* In a forked child, where vm is the parent's VM, which cannot be used in another address space:
 * closes it and its vCPUs, and makes an empty VM of the same kind in its place. */
int vm_renew(struct vm *vm, char *why, size_t n);

/* vm_away() closes the VM and its vCPUs; guest memory stays where it is.  vm_back() makes the VM
 * again; vcpu_bring_back() makes the vCPUs.  No other thread uses the VM meanwhile.
 * (process/alone.c) */
void vm_away(struct vm *vm);
int vm_back(struct vm *vm, char *why, size_t n);

/* Bytes of guest-physical space left for far tiers. */
uint64_t vm_gpa_room(const struct vm *vm, uint64_t nframes);
/* Pages of far memory for which the pool may still grow page tables: at least 60 GiB at first. */
uint64_t vm_far_room(const struct vm *vm);

/* Adds one KVM memory slot; never deleted.  size: a multiple of 4 KiB. */
int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size);
/* Allocates guest-physical space, 2 MiB-aligned, for a far tier; 0 when it is used up. */
uint64_t vm_take_gpa(struct vm *vm, uint64_t size);
/* EXIT_GROW_POOL: backs another size bytes of the pool. */
int64_t vm_grow_pool(struct vm *vm, uint64_t size);

/* Makes vCPU `number` with its block, at vm->level, ready to start in kern.  t, zeroed, is filled
 * in. */
int vcpu_create(struct vm *vm, struct thread *t, uint32_t number, enum vcpu_role role, char *why,
                size_t n);
/* Makes a vCPU that has run before ready to start in kern again.  0 or -errno. */
int vcpu_reset(struct thread *t, enum vcpu_role role);
/* Starts vCPU 0 and finds the privilege level by trying: p = 0, else p = 3.  Afterwards kern waits
 * in EXIT_READY. */
int vcpu_start_first(struct vm *vm, struct thread *t, char *why, size_t n);
/* The same with a known level: vm->level. */
int vcpu_start_known(struct vm *vm, struct thread *t, char *why, size_t n);
/* The privilege level at which programs run on this host, found with a separate VM: 0, 3, or -errno
 * with why. */
int vm_probe_level(char *why, size_t n);
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
/* Makes KVM forget the exception that it was about to inject, or has injected. */
void vcpu_forget_exception(struct thread *t);

/* Runs the vCPU until kern makes an exit (v->exit); handles kicks and the end of the program
 * itself.  (vcpu.c) */
void vcpu_run(struct thread *t);
/* KVM_RUN for the probe: 0 if kern exited, else -errno. */
int vcpu_try_run(struct thread *t);
/* Answers the exit that kern waits in.  [I] exit.op is EXIT_NONE from then on, until kern makes the
 * next one: so an exit without an answer can be told, whoever was killed meanwhile
 * (process/vfork.c). */
void thread_answer(struct thread *t, int64_t ret);
/* Runs t and has kern's exits answered, until t->end says how it ends. */
void thread_loop(struct thread *t);
/* The pending exit will not be answered by running on: lets KVM finish it, so that registers can be
 * set. */
void vcpu_retire(struct thread *t);
/* Makes a vCPU that ran the program when its host thread was killed (process/vfork.c) continue in
 * kern; an EXIT_EVENT comes at the latest. */
void vcpu_redirect(struct thread *t);
/* What to say of a guest in a state that makes no sense. */
#define VM_BLAME                                                                                 \
        "this is a bug in vmrun, or the program may have written into kern or changed the CPU's " \
        "tables: they share a privilege level"

/* CS after a triple fault on SVM: KVM has reset the vCPU, and the program's registers are gone. */
#define RESET_CS 0xf000
/* Prints registers and a page-table walk of a vCPU on vmrun's stderr, for an impossible state.
 * (dump.c) */
void vcpu_dump(struct thread *t);

/* Converts an address from kern: in the window, or in its own vCPU block.  NULL if it is in
 * neither, or [va, va+len) leaves it. */
void *kern_pointer(struct thread *t, uint64_t va, uint64_t len);

/* CONTROL->time. (time.c) */
void time_init(struct thread *t);
/* Gives another vCPU, which has just been made, the clock of the first.  Call it before the vCPU's
 * first run. */
void time_join(struct thread *t, const struct thread *first);
/* time_keep() reads the clock of a vCPU; time_bring_back() sets it in the vCPU that replaces it.
 * False: the clock cannot be read or set, so reading the time exits from now on. */
bool time_keep(const struct thread *t, uint64_t *offset);
void time_bring_back(struct thread *t, bool known, uint64_t offset);
/* In EXIT_READY: checks that its clock was set.  If not, reading the time exits from now on. */
void time_check(const struct thread *t);
void time_refresh(void);

/* The kick signal: SIGSTKFLT, which Linux never sends. */
#define KICK_SIGNAL 16
#define KICK_CODE   (-4000)             /* si_code: no other sender has it */
void vcpu_kick(struct thread *t);
/* Is a signal that came to t, or to its queue, a kick, and not the program's own signal of that
 * number? */
bool vcpu_is_kick(struct thread *t, const siginfo_t *info);

#endif
