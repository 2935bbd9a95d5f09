/*
 * The state that a fork takes out of the parent's guest and puts into the child's
 * (docs/architecture.md, "The life of a fork").  All of it passes through the xfer page of the vCPU
 * that forks.  Everything else of a process is copied by the host's fork().
 *
 * Filled in by kern (kern/entry/fork.c) in the parent, read by kern in the child; the host
 * (runtime/process/fork_image.c) stores it in between, and fills in the fields marked IN.
 */
#ifndef VMRUN_FORK_STATE_H
#define VMRUN_FORK_STATE_H

#include <stdint.h>

/* Of the thread and the address space. */
struct fork_state {
        uint64_t fs, gs;                /* bases */
        uint64_t brk_start, brk_now;
};

/* A VMA, as kern has it.  Memory locks are not inherited: kern leaves them out. */
struct fork_vma {
        uint64_t start, end, off, gpa;
        uint32_t prot, flags;
        uint32_t file;
        uint16_t order;                 /* of its pages: PAGE_SIZE << order bytes each */
        /* 1: MADV_DONTFORK: not in the child, where the host gives back the VMA's file or arena
         * range */
        uint16_t dropped;
};

/* A page whose content does not follow from its VMA.  pte: an entry as in kern/pager/pte.h.
 * REMOTE: the content is in that slot, which the host shares with the child before the child runs.
 * PRESENT, HELD: the content is in that frame: of the parent's cache on the way out, of the child's
 * on the way in. */
struct fork_page { uint64_t addr, pte; };

#define FORK_VMAS_MAX  (0x1000 / sizeof(struct fork_vma))
#define FORK_PAGES_MAX (0x1000 / sizeof(struct fork_page))

#endif
