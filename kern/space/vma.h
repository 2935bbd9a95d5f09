/*
 * The VMA tree: who is where, and where is room.  What a VMA means (charges, files, pages) is not known here.
 *
 * An AVL tree by address.  Each node also knows the largest gap between two neighbours below it, so the search for free
 * space is O(log n).  Nodes are type-stable: a reader that follows a stale pointer still reads a node.
 *
 * Everything but vma_read() needs mm_lock, and every change stands between vma_begin() and vma_end(), which wait for
 * nothing and exit to nobody: allocate first (vma_reserve).
 */
#ifndef VMRUN_VMA_H
#define VMRUN_VMA_H

#include <linux/mman.h>
#include "base/kern.h"
#include "mm/mm.h"

#define PAGE_MASK (~(uint64_t)(PAGE_SIZE - 1))
#define PROT_ALL  (PROT_READ | PROT_WRITE | PROT_EXEC)

/* Rounds up; 0 if that overflows. */
static inline uint64_t page_align(uint64_t n) { return (n + PAGE_SIZE - 1) & PAGE_MASK; }
static inline uint64_t page_count(uint64_t bytes) { return bytes >> PAGE_SHIFT; }
static inline uint64_t page_off(uint64_t addr) { return addr & (PAGE_SIZE - 1); }
static inline uint64_t lower(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t higher(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The same VMA with other bounds. */
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

#define VMA_MAX     65530               /* vm.max_map_count's default */
#define STACK_GUARD (256 * PAGE_SIZE)   /* kept free below what grows down */

struct vma_node {
        struct vma v;                   /* writers' own copy */
        _Atomic uint64_t pub[sizeof(struct vma) / 8];   /* the same, for vma_read() */
        _Atomic(struct vma_node *) child[2];
        struct vma_node *next;          /* free list, or a chain of removed nodes */
        uint64_t lo, hi;                /* subtree: where free space below it ends, where free space above it starts */
        uint64_t gap;                   /* subtree: largest gap between two neighbours in it */
        uint32_t height;
};

/* In pages; nodes: how many VMAs.  Kept by insert, remove and change.  peak: the most that total has been. */
struct vma_counts { uint64_t total, data, locked, peak; uint32_t nodes; };
extern struct vma_counts vma_counts __attribute__((visibility("hidden")));

void vma_begin(void);
void vma_end(void);

/* Makes sure that the next n vma_insert() find a node.  0 or -ENOMEM. */
int vma_reserve(unsigned n);
struct vma_node *vma_insert(const struct vma *v);
/* Takes n out of the tree; vma_free() gives the node back. */
void vma_remove(struct vma_node *n);
void vma_free(struct vma_node *n);
/* New content for n, which keeps its place among its neighbours. */
void vma_change(struct vma_node *n, const struct vma *v);

/* Until the next call readers are told that [start, end) is hidden; an empty range hides nothing. */
struct vma_hidden { uint64_t start, end; };
void vma_hide(uint64_t start, uint64_t end);

/* First VMA that ends above addr; last one that starts below it; the one after n. */
struct vma_node *vma_find(uint64_t addr);
struct vma_node *vma_before(uint64_t addr);
static inline struct vma_node *vma_next(const struct vma_node *n) { return vma_find(n->v.end); }
/* Highest address of a free run of len bytes in [low, high), 0 if there is none. */
uint64_t vma_gap(uint64_t low, uint64_t high, uint64_t len);
/* Where free space below v ends. */
uint64_t vma_floor(const struct vma *v);

/* Lock-free: copies the first VMA that ends above addr, hidden or not, and the hidden range; false if there is no VMA. */
bool vma_read(uint64_t addr, struct vma *out, struct vma_hidden *hidden);

/* Order, balance, gaps and counts: NULL, or what is wrong.  For tests and the leak check. */
const char *vma_check(void);

void vma_init(void);

#endif
