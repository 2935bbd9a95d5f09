/*
 * KVM's file descriptors, guest RAM, and guest-physical space.
 */
#ifndef VMRUN_VM_KVM_H
#define VMRUN_VM_KVM_H

#include "vm/vm.h"

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

/* Bytes of guest-physical space left for far tiers. */
uint64_t vm_gpa_room(const struct vm *vm, uint64_t nframes);
/* Pages of far memory for which the pool may still grow page tables: at least 60 GiB at first. */
uint64_t vm_far_room(const struct vm *vm);

/* Adds one KVM memory slot; never deleted.  size: a multiple of 4 KiB. */
int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size);
/* Likewise, in place of what was added for that address.  size 0: in place of it, nothing. */
int vm_replace_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size);
/* Allocates guest-physical space, 2 MiB-aligned, for a far tier; 0 when it is used up. */
uint64_t vm_take_gpa(struct vm *vm, uint64_t size);
/* EXIT_GROW_POOL: backs another size bytes of the pool. */
int64_t vm_grow_pool(struct vm *vm, uint64_t size);

#endif
