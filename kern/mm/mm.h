/*
 * The program's address space: VMAs and the memory system calls.
 *
 * VMAs are kept in a balanced tree of type-stable nodes.  Writers hold mm_lock and bump a sequence count around every change;
 * readers (the fault path) take no lock: they copy what they find and read again if the count moved.  Before a
 * range operation edits page tables it has changed the tree and waited for the faults published inside the range
 * (pt_wait_faults), so no fault that saw the old tree can install a page afterwards.  [I]
 */
#ifndef VMRUN_MM_H
#define VMRUN_MM_H

#include <stdbool.h>
#include <stdint.h>
#include "abi.h"

/* vma.flags, beside MAP_SHARED / MAP_PRIVATE / MAP_GROWSDOWN / MAP_NORESERVE of <linux/mman.h> in the low bits */
#define VMA_STACK   0x10000000u         /* the main stack (grows down to rlimit_stack) */
#define VMA_HEAP    0x20000000u         /* brk */
#define VMA_LOCKED  0x40000000u         /* mlock */
#define VMA_CHARGED 0x80000000u         /* its whole length is charged against the commit limit */
#define VMA_TOUCH   0x08000000u         /* a page is charged by itself when it is instantiated (mm_charge_page, PTE_CHARGED).  With
                                           neither flag pages cost nothing: shared, or a private file mapping never writable */
#define VMA_DENY(prot) ((uint32_t)(prot) << 24) /* PROT_* that mprotect must refuse: how the file was opened or mounted */
#define VMA_DONTFORK   0x00800000u      /* madvise: not in the child */
#define VMA_WIPEONFORK 0x00400000u      /* madvise: empty in the child */
#define VMA_SYSV       0x00200000u      /* shmat: one file id an attachment */

struct vma {
        uint64_t start, end;            /* page-aligned, end exclusive */
        uint32_t prot, flags;
        uint32_t file;                  /* file id of the host (EXIT_FILE_MAP), FILE_NONE for anonymous memory */
        uint32_t pad;
        uint64_t off;                   /* file: offset in bytes of start */
        uint64_t gpa;                   /* MAP_SHARED: guest-physical address of start in the arena */
};

/* Copies the VMA that holds addr.  Lock-free.  0, or -EFAULT if there is none, or if a range operation is under way there: so
 * -EFAULT is final only when mm_grow_stack, which waits for that operation, says the same.  Where one is under way
 * elsewhere in the VMA, the copy is only the part on this side of it. */
int mm_lookup(uint64_t addr, struct vma *out);

/* Grows a MAP_GROWSDOWN VMA (or the stack) down to addr, under Linux's rules (rlimit_stack, guard gap of 256 pages, commit
 * limit).  Takes mm_lock; the caller publishes no fault.  0: look again; -EFAULT: no such VMA; -ENOMEM. */
int mm_grow_stack(uint64_t addr);

/* First touch (NONE -> anything) of a page in a VMA with VMA_TOUCH (MAP_NORESERVE, PROT_NONE or read-only anonymous,
 * --overcommit), before it is installed with PTE_CHARGED.  0, or -ENOMEM if cache and far tier are full.  If it is then not
 * installed, or evicted to NONE, mm_uncharge(1) gives the charge back. */
int mm_charge_page(void);
void mm_uncharge(uint64_t pages);

/* The memory system calls.  a: the six arguments; the result is what the system call returns. */
long sys_brk(const uint64_t a[6]);
long sys_mmap(const uint64_t a[6]);
long sys_munmap(const uint64_t a[6]);
long sys_mprotect(const uint64_t a[6]);
long sys_mremap(const uint64_t a[6]);
long sys_madvise(const uint64_t a[6]);
long sys_mincore(const uint64_t a[6]);
long sys_msync(const uint64_t a[6]);
long sys_mlock(const uint64_t a[6]);
long sys_mlock2(const uint64_t a[6]);
long sys_munlock(const uint64_t a[6]);
long sys_mlockall(const uint64_t a[6]);
long sys_munlockall(const uint64_t a[6]);
long sys_shmat(const uint64_t a[6]);
long sys_shmdt(const uint64_t a[6]);

/* UPCALL_OBJECT_CUT (mm_cut.c). */
int64_t object_cut(uint64_t file, uint64_t pages);
/* Upcalls of the loader and of /proc/self/maps (abi.h). */
long mm_batch(struct mm_op *ops, uint64_t n);
uint32_t mm_maps(uint64_t above, struct map_entry *out, uint32_t max);

/* Pages charged now, and the limit, in pages (statistics, leak check). */
uint64_t mm_charged(void);
uint64_t mm_limit(void);
void mm_account_init(void);             /* reads CONTROL; before anything else here */

#endif
