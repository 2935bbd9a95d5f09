/*
 * A vCPU's block in the window: the program's registers, the requests between vCPU and host, and
 * kern's state of the vCPU.
 */
#ifndef VMRUN_ABI_VCPU_H
#define VMRUN_ABI_VCPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi_exits.h"
#include "layout.h"

/* The program's registers while its vCPU is in kern.  The stack for #PF ends at the end of this
 * struct, so the CPU itself stores err..ss; kern's stubs store the rest. */
struct regs {
        /* The size is a multiple of 16, as the CPU aligns a stack it switches to. */
        uint64_t pad;
        uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rcx, rdx, rsi, rdi;
        uint64_t rax;
        uint64_t err;
        uint64_t rip, cs, rflags, rsp, ss;
};

/* RFLAGS_KERN: no interrupts, no direction, no nested task.  RFLAGS_PROGRAM: what a program starts
 * with; interrupts are on, as Linux shows. */
#define RFLAGS_KERN    0x002
#define RFLAGS_PROGRAM 0x202

/* Where a vCPU is.  Written by kern, read by kickers (kern/base/flush.c has the protocol).  From
 * MODE_OUT kern moves on by a compare-and-swap: the host may make it MODE_TAKEN for a moment, and
 * then has the vCPU's stock of frames to itself (EXIT_STOCKS). */
enum vcpu_mode {
        MODE_OUT     = 0,               /* in the host, or not started */
        MODE_KERN    = 1,
        MODE_PROGRAM = 2,
        MODE_TAKEN   = 3,               /* as MODE_OUT */
};
static inline bool mode_is_out(uint32_t mode) { return mode == MODE_OUT || mode == MODE_TAKEN; }

enum vcpu_role { ROLE_PROGRAM = 0, ROLE_SERVICE = 1 };

/* Frames that move between a vCPU's stock and the lists of free ones at a time, at most. */
#define FRAME_BATCH 32
/* Free frames, of which each names the next (kern/pager/frames.c).  first: any, where n is 0. */
struct frame_chain { uint32_t first, n; };
/* A vCPU's stock of them: two batches at most. */
struct frame_list {
        struct frame_chain free;
        uint32_t list;                  /* the next refill begins with this list */
        uint32_t low;                   /* the last refill left less than the low mark */
        /* Frames that its vCPU made hot, less those that ceased to be, of which the pager's count
         * does not know yet. */
        int32_t hot;
};

#define STOCKS_TAKEN 64
struct exit_stocks {
        /* OUT */
        uint32_t n;                     /* chains, which belong to nobody now */
        uint32_t left;                  /* 1: there may be other stocks */
        struct frame_chain chain[STOCKS_TAKEN];
};

/* An evictor's piece of the frames, of a hand (kern/pager/clock.c). */
struct piece {
        uint32_t at, end;               /* [at, end): what it has not looked at yet */
        uint32_t number;                /* counted on by the hand, modulo 2^32 */
        uint32_t tick;                  /* when it was last compared with the hand */
};
struct sweeper {
        struct piece cold_hand, hot_hand;
        uint32_t cleared;               /* A bits that it has cleared, and told nobody of */
        uint32_t told;                  /* evictions that the common count has */
        uint32_t requests;              /* of pages to be hot, where too few frames were cold */
        uint32_t vain;                  /* frames that the cold hand passed since an eviction */
        uint32_t look;                  /* frames until it looks at the common counts again: */
        int32_t hot, over;              /* hot frames, and cold ones beyond the target */
};

/*
 * A program that runs at kern's own privilege level may write into kern by accident.  Memory that
 * kern never writes is mapped without W.  Structs that must be writable have canaries between their
 * parts; the host looks at the canaries at each exit (runtime/vm/vcpu.c).
 */
#define CANARY 0x5afe57ac6b0b1e55ull

/* Facts of a vCPU, written by the host and read by kern.  Mapped without W. */
struct vcpu_fixed {
        uint32_t number;                /* index of the block */
        uint32_t role;                  /* enum vcpu_role */
        uint32_t level;                 /* privilege level p: 0 or 3 */
        /* Of the thread and process that run on this vCPU.  A child of vfork runs on its
         * parent's. */
        uint32_t tid, pid;
        uint32_t pad;
        uint64_t fs_base, gs_base;      /* FS and GS when the vCPU starts */
        /* The argument of set_robust_list.  kern does not use it; vmruns of other processes read
         * it. */
        uint64_t robust_list;
        /* p = 3: IRET frame (rip cs rflags rsp ss) that carries the #PF stub to CPL 3 */
        uint64_t frame3_pf[5];
        uint64_t frame3_trap[5];        /* IRET frame for the other exceptions */
};

#define LOOKAHEAD_ROOM 2048
#define POINTERS_ROOM  768

/* First page of a vCPU block. */
struct vcpu {
        uint64_t canary0;

        /* Written by kern in each fault, read by kickers; a line of its own. */
        _Alignas(CACHE_LINE) _Atomic uint32_t mode;     /* enum vcpu_mode */
        _Atomic uint32_t event;         /* EVENT_* set by kickers, cleared by kern */
        /* Flush epoch up to which this vCPU's TLB is clean (kern/base/flush.c). */
        _Atomic uint64_t flushed;
        /* Page address + 1 of a fault in progress, 0: none (kern/paging/fault.c). */
        _Atomic uint64_t faulting;

        _Alignas(CACHE_LINE) uint64_t cr2;      /* stored by the exception stubs */
        uint64_t entry_tsc;             /* when the fault being handled began */
        /* guide_run: odd while a guide of the program (struct guide) runs on this vCPU; written by
         * kern.  guide_late: the guide_run of a guide that has taken too long; written by the host
         * before it sets EVENT_GUIDE.  Both only grow; relaxed, since the event orders them. */
        _Atomic uint32_t guide_run, guide_late;
        /* Does a guide run?  For kern, which looks at this word in each fault: 0, or a bit of #PF's
         * error code. */
        uint64_t guided;
        uint64_t canary1;

        struct exit_req exit;
        struct upcall   upcall;
        uint64_t canary2;
        struct regs     regs __attribute__((aligned(16)));
        uint64_t canary3;

        /* Only kern on this vCPU touches it; but frames: see MODE_TAKEN. */
        struct frame_list frames;
        struct sweeper sweeper;         /* of its direct reclaim */
        /* Writes of the bulk ring before this index are over and were reported
         * (kern/far/rings.c). */
        uint32_t writes_seen;
        /* Queues that kern drives by itself (kern/far/direct/queue.h): the one to which this vCPU
         * last posted a READ, which has that number there; one whose doorbell it has to ring; the
         * host cannot ring for it; how often it slept for a page; it waits for a part of a page. */
        struct direct_queue *direct, *bell;
        uint32_t direct_at, may_not_ring, direct_sleeps, part_asked;
        /* Faults with these registers that waited for a frame, and pager.unwritable halfway; this
         * fault has waited (kern/paging/stuck.c). */
        struct stuck { uint64_t registers, unwritable; uint32_t waits, waited; } stuck;
        /* The record of this vCPU's faults, from which kern predicts the next ones: a struct
         * lookahead (kern/pager/lookahead.h), which the host does not read. */
        uint64_t lookahead[LOOKAHEAD_ROOM / 8];
        uint64_t pointers[POINTERS_ROOM / 8];   /* likewise, a struct pointers (pointers.h) */
        uint64_t canary4;
};
/* The host has something to do: EXIT_EVENT before the program continues. */
#define EVENT_HOST 1u
/* The host changed more of regs than a system call returns: go back by iretq. */
#define EVENT_IRET 2u
/* The vCPU's stock of free frames is needed: kern gives it back. */
#define EVENT_STOCK 16u
/* vcpu.guide_late is new. */
#define EVENT_GUIDE 4u
/* With EVENT_HOST: the program, or its guide, executed an instruction that only a kernel may, or a
 * fatal split lock. */
#define EVENT_PRIVILEGED 8u

static inline struct vcpu *vcpu_block(unsigned n)
{
        return (struct vcpu *)(WINDOW + VCPUS_OFF + (uint64_t)n * VCPU_BLOCK);
}
static inline struct vcpu_fixed *vcpu_fixed(struct vcpu *v)
{
        return (struct vcpu_fixed *)((char *)v + VCPU_FIXED_OFF);
}
static inline void *vcpu_xfer(struct vcpu *v) { return (char *)v + VCPU_XFER_OFF; }

_Static_assert(offsetof(struct vcpu, mode) / CACHE_LINE ==
                       offsetof(struct vcpu, faulting) / CACHE_LINE,
               "who looks at all vCPUs reads one line of each");
_Static_assert(sizeof(struct vcpu) <= 0x1000, "struct vcpu fits its page");
_Static_assert(VCPU_FIXED_OFF % PAGE_SIZE + sizeof(struct vcpu_fixed) <= PAGE_SIZE,
               "struct vcpu_fixed fits its page");
_Static_assert(VCPUS_OFF + (uint64_t)VCPUS_MAX * VCPU_BLOCK <= RINGS_OFF,
               "vCPU blocks fit below the rings");

#endif
