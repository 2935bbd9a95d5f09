/*
 * The VMA tree: where each VMA is, and where there is free space.  The tree does not know the
 * meaning of a VMA (charges, files, pages).
 *
 * An AVL tree by address.  Each node also knows the largest gap between two neighbours below it, so
 * the search for free space is O(log n).  Nodes are type-stable: a reader that follows a stale
 * pointer still reads a node.
 *
 * Writers hold mm_lock and bump a sequence count around every change.  Readers (the fault path)
 * take no lock: they copy the VMA that they find, and read again if the count moved.  Before a
 * range operation edits page tables it has changed the tree and waited for the faults published
 * inside the range (pt_wait_faults), so no fault that saw the old tree can install a page
 * afterwards.  [I]
 *
 * Everything but vma_read() and mm_lookup() needs mm_lock.  Every change stands between vma_begin()
 * and vma_end().  Code between them neither waits nor exits: allocate first (vma_reserve).
 */
#ifndef VMRUN_VMA_H
#define VMRUN_VMA_H

#include <linux/mman.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "abi_exits.h"
#include "base/page.h"

/* vma.flags, beside MAP_SHARED / MAP_PRIVATE / MAP_GROWSDOWN / MAP_NORESERVE in the low bits. */
#define VMA_STACK   0x10000000u         /* the main stack (grows down to rlimit_stack) */
#define VMA_HEAP    0x20000000u         /* brk */
#define VMA_LOCKED  0x40000000u         /* mlock */
#define VMA_ONFAULT 0x00040000u         /* with LOCKED: a page is locked when it is touched */
#define VMA_LOCK    (VMA_LOCKED | VMA_ONFAULT)
#define VMA_CHARGED 0x80000000u         /* its whole length is charged against the commit limit */
/* Each page is charged when it is instantiated (mm_charge_page, PTE_CHARGED).  With neither flag
 * pages cost nothing: shared, or a private file mapping that was never writable. */
#define VMA_TOUCH   0x08000000u
/* PROT_* that mprotect must refuse: how the file was opened or mounted. */
#define VMA_DENY(prot) ((uint32_t)(prot) << 24)
#define VMA_DONTFORK   0x00800000u      /* madvise: not in the child */
#define VMA_WIPEONFORK 0x00400000u      /* madvise: empty in the child */
#define VMA_SYSV       0x00200000u      /* shmat: one file id an attachment */
#define VMA_SEQUENTIAL 0x00100000u      /* madvise: the next pages will be used */
#define VMA_RANDOM     0x00080000u      /* madvise: the next pages are no guess */
#define VMA_ADVICE     (VMA_SEQUENTIAL | VMA_RANDOM)

#define PROT_ALL    (PROT_READ | PROT_WRITE | PROT_EXEC)

#define VMA_MAX     65530               /* vm.max_map_count's default */
#define STACK_GUARD (256 * PAGE_SIZE)   /* kept free below a VMA that grows down */

struct vma {
        /* end exclusive.  [I] These, off and gpa are multiples of the size of the object's pages,
         * vma_page(): the calls that would cut one are refused by split() and map_locked(). */
        uint64_t start, end;
        uint32_t prot, flags;
        /* File id of the host (EXIT_FILE_MAP), FILE_NONE for anonymous memory. */
        uint32_t file;
        /* 0, but in a mapping of huge pages 9 or 18: each has PAGE_SIZE << order bytes. */
        uint32_t order;
        uint64_t off;                   /* file: offset in bytes of start */
        /* MAP_SHARED: guest-physical address of start in the arena. */
        uint64_t gpa;
};

struct vma_node {
        struct vma v;                   /* writers' own copy */
        _Atomic uint64_t pub[sizeof(struct vma) / 8];   /* a copy of v, for vma_read() */
        _Atomic(struct vma_node *) child[2];
        struct vma_node *next;          /* free list, or a chain of removed nodes */
        /* subtree: where free space below it ends, where free space above it starts */
        uint64_t lo, hi;
        uint64_t gap;                   /* subtree: largest gap between two neighbours in it */
        uint32_t height;
};

/* Is v to be resident as a whole?  False: by the page, or not locked. */
static inline bool vma_locked_whole(const struct vma *v)
{
        return (v->flags & VMA_LOCK) == VMA_LOCKED;
}

/* In pages.  whole: locked pages of VMAs with vma_locked_whole().  nodes: number of VMAs.  advised:
 * number of VMAs with VMA_ADVICE.  Insert, remove and change keep them.  peak: the largest
 * total. */
struct vma_counts { uint64_t total, data, locked, whole, peak; uint32_t nodes, advised; };
extern struct vma_counts vma_counts __attribute__((visibility("hidden")));

/* v with other bounds. */
static inline struct vma vma_part(struct vma v, uint64_t start, uint64_t end)
{
        if (v.file != FILE_NONE)
                v.off += start - v.start;
        if (v.flags & MAP_SHARED)
                v.gpa += start - v.start;
        v.start = start;
        v.end = end;
        return v;
}

/* The page size of v's object.  Linux neither cuts such a page nor maps a part of it.  Here the
 * size means nothing more: the program's entries are of 4 KiB in any VMA. */
static inline uint64_t vma_page(const struct vma *v) { return PAGE_SIZE << v->order; }

static inline bool vma_accessible(const struct vma *v) { return v->prot & PROT_ALL; }

void vma_init(void);

void vma_begin(void);
void vma_end(void);

/* Ensures that the next n calls of vma_insert() find a node.  0 or -ENOMEM. */
int vma_reserve(unsigned n);
struct vma_node *vma_insert(const struct vma *v);
/* Takes n out of the tree; vma_free() gives the node back. */
void vma_remove(struct vma_node *n);
void vma_free(struct vma_node *n);
/* Gives n new content; it keeps its place among its neighbours. */
void vma_change(struct vma_node *n, const struct vma *v);

/* Hides [start, end) from readers until the next call; an empty range hides nothing. */
struct vma_hidden { uint64_t start, end; };
void vma_hide(uint64_t start, uint64_t end);

/* First VMA that ends above addr; last VMA that starts below it; the VMA after n. */
struct vma_node *vma_find(uint64_t addr);
struct vma_node *vma_before(uint64_t addr);
static inline struct vma_node *vma_next(const struct vma_node *n) { return vma_find(n->v.end); }
/* Highest address of a free run of len bytes in [low, high), 0 if there is none. */
uint64_t vma_gap(uint64_t low, uint64_t high, uint64_t len);
/* Where free space below v ends. */
uint64_t vma_floor(const struct vma *v);

/* Lock-free: copies the first VMA that ends above addr, hidden or not, and the hidden range; false
 * if there is no VMA. */
bool vma_read(uint64_t addr, struct vma *out, struct vma_hidden *hidden);

/* Lock-free: copies the VMA that holds addr.  0, or -EFAULT if there is none, or if a range
 * operation is under way there.  So -EFAULT is final only if mm_grow_stack(), which waits for that
 * operation, returns it too.  If an operation is under way elsewhere in the VMA, the copy is only
 * the part on this side of it. */
int mm_lookup(uint64_t addr, struct vma *out);

/* VMA_SEQUENTIAL, VMA_RANDOM or 0: the advice of madvise about addr.  Lock-free. */
uint32_t vma_advice(uint64_t addr);

/* Order, balance, gaps and counts: NULL, or a text that says what is wrong.  For tests. */
const char *vma_check(void);

#endif
