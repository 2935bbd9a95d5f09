/*
 * The control page, which all vCPUs and the host share.
 */
#ifndef VMRUN_ABI_CONTROL_H
#define VMRUN_ABI_CONTROL_H

#include <stddef.h>
#include <stdint.h>
#include "abi_slab.h"
#include "layout.h"

/* Clocks without an exit: ns = base + ((tsc - tsc0) * mult >> 32).  Seqlock: odd while the host
 * writes. */
struct time_page {
        _Atomic uint32_t seq;
        uint32_t valid;                 /* 0: TSC cannot be used, always exit */
        /* ns = base + (tsc - tsc0) * mult >> 32; CLOCK_MONOTONIC_RAW has a rate of its own */
        uint64_t tsc0, mult, raw_mult;
        uint64_t refresh_tsc;           /* beyond this TSC ask for a refresh (EXIT_TIME) */
        int64_t  realtime, monotonic, boottime, tai, monotonic_raw;     /* ns at tsc0 */
};

/* What KVM says of the thread that runs a vCPU: struct kvm_steal_time (Linux,
 * Documentation/virt/kvm/x86/msr.rst).  All 0 if KVM was not asked (runtime/vm/vcpu_setup.c). */
struct steal_time {
        uint64_t ns;                    /* that it waited for a CPU */
        uint32_t version, flags;
        _Atomic uint8_t state;          /* STEAL_* */
        uint8_t pad[47];
};
/* The host does not run this vCPU.  Set by KVM, which clears the whole byte before the vCPU runs
 * again. */
#define STEAL_PREEMPTED 1
/* KVM flushes its TLB then.  Set by kern, together with STEAL_PREEMPTED or not at all. */
#define STEAL_FLUSH     2

/* Frames that kern counts: free ones, hot ones, and those that are to be cold (pager/clock.c). */
enum kern_frames { FRAMES_FREE, FRAMES_HOT, FRAMES_TO_BE_COLD, KERN_FRAMES };

/* Shared by all vCPUs and the host.  By writer: what each fault reads is on lines that are written
 * at the start or seldom; of the words that are often written, each group that is written together
 * has a line of its own. */
struct control {
        uint64_t canary0;
        uint32_t abi_version;
        uint32_t level;                 /* privilege level p */
        _Atomic uint32_t stats_on;      /* the host may change it at any time; a hint */
        uint32_t debug;                 /* leak check at exit, extra asserts */
        uint32_t overcommit;
        /* The first use of a page table entry with A=0 costs a trap to the host (shadow paging).
         * Pages that kern brings in ahead then have A=1. */
        uint32_t shadow_paging;
        /* All threads, vmrun's own too, run on one CPU: a hint, which the host may change while the
         * program runs. */
        _Atomic uint32_t one_cpu;
        _Atomic uint32_t nvcpus;        /* vCPU blocks in use: [0, nvcpus) */
        _Atomic uint32_t stopping;      /* the host wants all threads to stop (runtime/vm/stop.c) */
        uint32_t xsave;                 /* the CPU has XSAVE, and XCR0 is set */
        /* How the pager looks ahead (kern/pager/lookahead.h), which the host may change while the
         * program runs; hints. */
        _Atomic uint32_t prefetch_policy, prefetch_window, prefetch_history;
        /* Far memory is switched off: pages are evicted only when no frame is free.  The service
         * vCPU reads this word whenever it wakes up (kern/paging/cleaner.c). */
        _Atomic uint32_t far_off;
        /* Parts of pages have been read, and verified (vmg_read).  A hint for the host. */
        _Atomic uint32_t parts_read;
        /* kern times the fetches whose number has none of these bits: one in FETCH_SAMPLE for the
         * statistics, all of them for a profile.  A hint, as stats_on; the host sets both. */
        _Atomic uint64_t fetch_mask;
        /* Addresses of a struct record_log and a struct replay (recorded.h); 0: none.  Set before
         * the program starts. */
        uint64_t record, replay;

        uint64_t nframes;               /* cache size in pages */
        uint64_t frames_off;            /* offset of frame 0 in the window; a multiple of 2 MiB */
        uint64_t extra_off, extra_end;  /* offsets of room behind the frames (recorded.h) */
        uint64_t frame_table;           /* address of struct frame[nframes] */
        uint64_t pool_max;              /* offset up to which the pool may grow */
        uint64_t profile;               /* address of a struct profile (fault_profile.h); 0: none */
        /* Capacity of the far tiers, in pages: grows when a node is added.  Orders nothing. */
        _Atomic uint64_t far_pages;
        /* Where the arena begins (memory/arena.h), and its bytes: below are RAM and far tiers. */
        uint64_t arena_gpa, arena_size;

        /* Soft limits in bytes, kept by kern. */
        uint64_t rlimit_as, rlimit_data, rlimit_stack, rlimit_memlock;
        uint64_t mmap_top;              /* mmap goes down from here */
        uint64_t mmap_min;              /* vm.mmap_min_addr */

        uint64_t canary1;

        /* Frames: written by vCPUs that wait for one, and by the cleaner.
         * frames_seq: futex: incremented when frames become free and a vCPU waits for them. */
        _Alignas(CACHE_LINE) _Atomic uint32_t frames_seq;
        _Atomic uint32_t frames_waiters;
        /* vCPUs that sleep until the cleaner has freed frames, but could go on without.  The
         * cleaner wakes them when it wakes waiters, and does not count them when it decides on
         * `starved`. */
        _Atomic uint32_t frames_wishers;
        /* The value of frames_seq when the cleaner found that it cannot free anything: far tiers
         * full, or all pinned; 0 once it has freed a frame again.  kern/paging/cleaner.c has the
         * table. */
        _Atomic uint32_t starved;

        /* The service vCPU: written when it falls asleep, is woken or quiesced.
         * service_seq: its futex. */
        _Alignas(CACHE_LINE) _Atomic uint32_t service_seq;
        _Atomic uint32_t service_asleep;
        /* Set by the host to quiesce the service vCPU, with no write under way, until it is
         * cleared. */
        _Atomic uint32_t service_hold;
        /* futex: the service vCPU is quiesced.  Stored by kern with release, for the vCPU that then
         * has the pager to itself. */
        _Atomic uint32_t service_held;

        /* The I/O thread, which writes wait_ticks whenever a node answers.
         * io_asleep: it sleeps: the vCPU that clears this rings DOORBELL_PORT. */
        _Alignas(CACHE_LINE) _Atomic uint32_t io_asleep;
        /* TSC ticks for which a vCPU polls a BUSY entry before it sleeps (runtime/far/io.c). */
        _Atomic uint64_t wait_ticks;

        /* A set: vCPUs that have put entries on rings which the I/O side does not poll any more
         * (runtime/far/polled.h).  Bit n % 64 of word n / 64 is vCPU n. */
        _Alignas(CACHE_LINE) _Atomic uint64_t io_news[VCPUS_MAX / 64];

        /* TSC ticks that copies from and to timed tiers took, for the statistics.  By kern. */
        _Alignas(CACHE_LINE) _Atomic uint64_t wire_copied;

        /* Offsets in the window: the unused pages of the pool, and the end of its backed part. */
        _Alignas(CACHE_LINE) uint64_t pool_next;
        uint64_t pool_end;
        uint64_t canary2;

        /* Last flush asked for (kern/base/flush.c). */
        _Alignas(CACHE_LINE) _Atomic uint64_t flush_epoch;
        uint64_t canary3;

        _Alignas(CACHE_LINE) struct time_page time;
        uint64_t tsc_khz;
        int64_t tsc_offset;             /* guest's TSC - host's, if time.valid; for the host */
        uint32_t nslabs;
        /* Moves when a node was added: EXIT_LEASE may succeed again.  Stored with release, after
         * the node is there. */
        _Atomic uint32_t nodes_added;
        /* This process's number in the tree (allocator.h).  This field and the next are valid once
         * there is a slab. */
        uint32_t tree_number;
        uint32_t tree_pad;
        uint64_t tree_gpa;              /* of struct tree_common */
        uint64_t guides;                /* address of struct guide[GUIDES_MAX]; 0: none yet */
        uint64_t notices;               /* address of a struct notices (kern/pager/notices.h) */
        /* Addresses of numbers of frames in kern, each an _Atomic uint32_t; 0: kern is not up. */
        uint64_t frames_of[KERN_FRAMES];
        uint64_t canary4;
        struct slab slabs[SLABS_MAX];   /* filled by the host at EXIT_LEASE */
        uint64_t canary5;

        _Alignas(CACHE_LINE) struct steal_time steal[VCPUS_MAX];        /* by number of vCPU */
};

#define FRAMES_EACH 64                  /* frames that a vCPU needs to make progress */
/* Pages behind the frames, a vCPU one, numbered on from the cache's last frame.  A cache of few
 * frames has few vCPUs. */
static inline uint64_t bounce_pages(uint64_t nframes)
{
        uint64_t vcpus = nframes / FRAMES_EACH + 2;

        return vcpus < VCPUS_MAX ? vcpus : VCPUS_MAX;
}

/* Frames behind the bounce pages, for repairs and scrubs of the I/O thread (runtime/far/repair.c,
 * scrub.c). */
#define REPAIR_FRAMES 32
#define SCRUB_FRAMES  8

#define CONTROL ((struct control *)(WINDOW + CONTROL_OFF))

_Static_assert(CONTROL_OFF % CACHE_LINE == 0 &&
                       offsetof(struct control, frames_seq) % CACHE_LINE == 0,
               "what is often written shares no line with what each fault reads");
_Static_assert(CONTROL_OFF + sizeof(struct control) <= VCPUS_OFF, "struct control fits its room");

#endif
