/*
 * The border between kern (in the guest) and vmrun (on the host).
 *
 * kern asks the host by an exit: it fills vcpu.exit and executes OUT to EXIT_PORT; the host answers
 * in vcpu.exit.ret and resumes.  Before it answers, the host may ask kern by an upcall: it fills
 * vcpu.upcall and resumes; kern performs it inside the pending exit and comes back with
 * EXIT_UPCALL_DONE.  Upcalls may exit in turn (a file page to read), so the two nest like calls;
 * nothing of vcpu.exit survives an upcall.
 *
 * Any change here that the other side can notice bumps ABI_VERSION; the kern image is linked into
 * vmrun, so a mismatch is a build error and is refused at start.
 */
#ifndef VMRUN_ABI_H
#define VMRUN_ABI_H

#include <stdint.h>
#include "layout.h"

#define ABI_VERSION 21
#define KERN_MAGIC  0x6e72656b6e757276ull       /* "vrunkern" */

/* First bytes of the kern image.  All addresses are virtual, in the window.  OUT of kern's link. */
struct kern_header {
        uint64_t magic;
        uint32_t abi_version;
        uint32_t vectors;               /* number of exception stubs: 32 */
        uint64_t image_end;             /* end of bss */
        uint64_t text_end;              /* [WINDOW, text_end) is executable, the rest is not */
        uint64_t constant_end;          /* [WINDOW, constant_end) is never written */
        uint64_t start;                 /* first RIP of a vCPU */
        /* Where the host points a kicked vCPU that ran program code. */
        uint64_t event;
        uint64_t syscall;               /* LSTAR */
        uint64_t stubs[2];              /* exception stubs at p = 0 and at p = 3 */
        uint64_t stub_size;             /* bytes between two stubs of a table */
        /* p = 3: RIP after the int3 that asks ring 0 for a TLB flush */
        uint64_t flush_gate;
        /* Where the stubs continue at the program's level (vcpu_fixed.frame3_*) */
        uint64_t pf_common, trap_common;
        /* Restartable returns to the program: a kicked RIP in [look, look_end) goes back to look */
        uint64_t look[2], look_end[2];
};

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

/* Where a vCPU is.  Written by kern, read by kickers (kern/base/flush.c has the protocol). */
enum vcpu_mode {
        MODE_OUT     = 0,               /* in the host, or not started */
        MODE_KERN    = 1,
        MODE_PROGRAM = 2,
};

enum vcpu_role { ROLE_PROGRAM = 0, ROLE_SERVICE = 1 };

/* A flag in the vector of an exception: it was not the exception, but the program's `int n` through
 * a gate whose exception pushes an error code. */
#define SOFTWARE_INT 0x100

/* Exits: kern asks, the host answers in exit.ret (0 or a value, or -errno).  a[] is IN, out[] is
 * OUT. */
enum exit_op {
        EXIT_NONE = 0,

        /* --- life of a vCPU --- */

        /* A program vCPU is up.  a[0] its TSC.  The host loads the program by upcalls and sets
         * regs.rip and regs.rsp. */
        EXIT_READY,
        /* Forwards a system call: number and arguments are in regs (rax rdi rsi rdx r10 r8 r9).
         * ret goes to rax. */
        EXIT_SYSCALL,
        /* The answer to an upcall is in upcall.ret. */
        EXIT_UPCALL_DONE,
        /* An exception of the program's.  a[0] signo, a[1] si_code, a[2] si_addr, a[3] vector,
         * perhaps with SOFTWARE_INT.  Changes regs so that the program's handler runs next, or that
         * the program continues as on Linux (runtime/signal/trapped.c).  Does not return if the
         * program dies of it. */
        EXIT_SIGNAL,
        /* kern met an impossible state.  a[0] address of a text in the window.  Does not return. */
        EXIT_BUG,
        /* a[0] address of a text in the window, a[1] level: 0 always shown, 1 with -v. */
        EXIT_LOG,

        /* --- mappings --- */

        /* Fills pages of a private file mapping.  a[0] file id, a[1] offset in bytes, a[2] count n,
         * a[3] address of n frame numbers (uint32_t) in the window.  ret: number of pages that
         * begin before the end of the file (each filled, its tail zeroed), or -errno. */
        EXIT_FILE_READ,
        /* mmap of a file.  a[0] fd, a[1] prot, with MAP_FIXED together with the address (whole
         * pages), a[2] flags, a[3] offset, a[4] length; 0: maps nothing, only looks at fd and
         * flags.  ret: 0 or -errno.  out[0] object_word().  Private: its id has one reference.
         * Shared: none of its own, it lives as long as its arena range; out[1] guest-physical
         * address.  In a file of huge pages the length is rounded up to them. */
        EXIT_FILE_MAP,
        /* MAP_SHARED|MAP_ANONYMOUS.  a[0] length.  Answers as a shared EXIT_FILE_MAP. */
        EXIT_ANON_SHARED,
        /* shmat.  a[0] shmid, a[1] of the flags SHM_RDONLY and SHM_EXEC.  ret: length in bytes,
         * whole pages, or -errno; out[] as of a shared EXIT_FILE_MAP. */
        EXIT_SHM_ATTACH,
        /* For mremap: maps the object again that file a[1] has in the arena at a[0] (guest-physical
         * address), from there on, with length a[2] (bytes, whole pages).  ret: 0 or -errno; out[1]
         * as of a shared EXIT_FILE_MAP. */
        EXIT_SHARED_AGAIN,
        /* a[0] file id, a[1] +1 or -1. */
        EXIT_FILE_REF,
        /* Gives an arena range back.  a[0] guest-physical address, a[1] length. */
        EXIT_SHARED_UNMAP,
        /* The program touches a page of a shared mapping.  a[0] file id, a[1] the page's offset in
         * bytes, a[2] its guest-physical address, with bit 0 if it is to be written.  ret: number
         * of pages from there on that may be mapped, at most up to the end of the object; 0: the
         * touch is SIGBUS. */
        EXIT_SHARED_CHECK,
        /* Copies between the arena and kern.  a[0] guest-physical address, a[1] address in the
         * window, a[2] length, a[3] 1: into the arena, 0: out of it. */
        EXIT_ARENA_COPY,
        /* a[0] guest-physical address in the arena, a[1] length, a[2] flags. */
        EXIT_MSYNC,
        /* Are these pages in the page cache?  a[0] file id of a private mapping, a[1] offset in
         * bytes; or a[0] FILE_NONE, a[1] guest-physical address in the arena.  a[2] number of
         * pages, at most PAGE_SIZE.  ret: 0, and mincore's bytes in xfer, or -errno. */
        EXIT_MINCORE,
        /* With control.replay: a private mapping of a file was made.  a[0] file id, a[1] offset in
         * bytes, a[2] length, a[3] address. */
        EXIT_FILE_MAPPED,

        /* --- memory of kern, and slots --- */

        /* The pool is used up: adds a[0] bytes (multiple of 2 MiB) after control.pool_end.  ret: 0
         * or -ENOMEM. */
        EXIT_GROW_POOL,
        /* Service vCPU.  a[0] slab number, the first that kern does not use yet.  ret: 0: the slab
         * is in control.slabs; -EAGAIN: slots of dead processes were freed instead, or will be when
         * it is asked again; -EBUSY: every tier is used up, but other processes may free slots;
         * -ENOSPC: every tier is used up for good. */
        EXIT_LEASE,
        /* Cache and far memory are full.  Returns, unless that is so because a node does not
         * answer: then the program ends with a message. */
        EXIT_NO_MEMORY,
        /* Releases shared slots.  a[0] address of uint64_t[] in the window, a[1] how many. */
        EXIT_SLOTS_RELEASE,

        /* --- waiting and waking --- */

        /* Sleeps until control.frames_seq differs from a[0].  ret: 0, spurious returns allowed. */
        EXIT_WAIT_FRAMES,
        /* Wakes all vCPUs that sleep in EXIT_WAIT_FRAMES. */
        EXIT_WAKE_FRAMES,
        /* Service vCPU: sleeps until control.service_seq differs from a[0]. */
        EXIT_SERVICE_SLEEP,
        /* Doorbell: wakes the service vCPU. */
        EXIT_SERVICE_WAKE,
        /* Sleeps until the 4 bytes at a[0] (in the window) differ from a[1], at most 100 ms, or
         * a[3] nanoseconds if that is not 0 and less; spurious returns allowed.  a[2]: 0: far
         * memory changes them, so if there is no I/O thread this exit does its work meanwhile; 1:
         * another vCPU changes them. */
        EXIT_WAIT_PTE,
        /* Wakes the vCPUs that sleep on a[0], at most a[1]; 0: all. */
        EXIT_WAKE_PTE,
        /* a[0] vCPU number: sends it the kick signal. */
        EXIT_KICK,
        /* Lets another thread run: the holder of a lock may not be running. */
        EXIT_YIELD,
        /* Refreshes control.time. */
        EXIT_TIME,
        /* EVENT_HOST was set: the host does what it was set for.  a[0] 1: a guide ran until now, so
         * an instruction that trapped was not the thread's. */
        EXIT_EVENT,
        /* control.stopping, and kern holds nothing: returns when threads may continue. */
        EXIT_PAUSE,
        /* There are guides: the host watches for one that takes too long.  ret: 0, or -EAGAIN: it
         * can have no thread for that. */
        EXIT_GUIDES,
        EXIT_OPS
};

/* Upcalls: the host asks, kern answers in upcall.ret.  a[] is IN; bulk data is in xfer. */
enum upcall_op {
        UPCALL_NONE = 0,
        /* Makes [a[0], a[0]+a[1]) resident; a[2]: 1 for write access.  ret: 0; -EFAULT;
         * -ENOMEM: no frames; -EIO: the page cannot be read back. */
        UPCALL_POPULATE,
        /* Performs a[0] struct mm_op from xfer in order.  ret: 0 or -errno of the first that
         * failed; each op's own result is in its ret. */
        UPCALL_MM,
        /* Copies VMAs to xfer as struct map_entry, those that end above a[0].  ret: how many (0: no
         * more). */
        UPCALL_MAPS,
        /* A file object was truncated.  a[0] file id, a[1] pages left: drops the entries past them,
         * those of private copies too.  ret: how many dropped entries led to the arena. */
        UPCALL_OBJECT_CUT,

        /* --- fork (fork.h) --- */

        /* struct fork_state to xfer.  ret: 0. */
        UPCALL_FORK_STATE,
        /* struct fork_vma to xfer, for VMAs that end above a[0].  ret: how many (0: no more). */
        UPCALL_FORK_VMAS,
        /* struct fork_page to xfer, from address a[0] on.  a[1]: dirty pages that may be copied to
         * the child instead of written back (cheaper); a[2]: the same when no slot can be
         * allocated.  ret: how many (0: no more), or -ENOMEM. */
        UPCALL_FORK_PAGES,
        /* In the child: takes the struct fork_state from xfer.  ret: 0. */
        UPCALL_ADOPT_STATE,
        /* Takes a[0] struct fork_vma.  ret: 0 or -ENOMEM. */
        UPCALL_ADOPT_VMAS,
        /* Takes a[0] struct fork_page.  ret: 0 or -errno.  On return a page that was copied names a
         * frame of this cache, which the host fills before it answers the exit. */
        UPCALL_ADOPT_PAGES,

        /* At exit, with all other threads stopped: verifies frame, slot and pin counts.  Threads
         * that wait hold a[0] pins.  ret: number of inconsistencies (texts by EXIT_LOG). */
        UPCALL_LEAKCHECK,
        /* Fills the struct mm_usage in xfer. */
        UPCALL_USAGE,
        /* This vCPU's thread ends: kern gives back what the vCPU holds. */
        UPCALL_THREAD_END,
        UPCALL_OPS
};

/* What the program uses, in pages.  OUT.  Other vCPUs change the counters meanwhile, so sums may be
 * off by a few. */
struct mm_usage {
        uint64_t mapped, mapped_peak;   /* now, and the peak */
        uint64_t data, locked;          /* of these: private and writable, and mlocked */
        uint64_t resident, resident_peak; /* frames of the cache in use */
        /* Slots of the far tiers in use, including those whose page is also resident. */
        uint64_t far;
};

/* A memory operation of the loader: the same code that serves the program's own system call. */
struct mm_op {
        uint32_t op;                    /* enum mm_op_kind */
        uint32_t prot, flags;           /* PROT_*, MAP_* */
        int32_t  fd;                    /* host fd for file mappings, else -1 */
        uint64_t addr, len, off;
        int64_t  ret;                   /* OUT: address or -errno */
};
enum mm_op_kind {
        MM_MAP = 1,                     /* mmap(addr, len, prot, flags, fd, off) */
        MM_UNMAP,
        MM_PROTECT,
        /* Create the stack VMA [addr, addr+len), growing down to at most off bytes. */
        MM_STACK,
        MM_BRK,                         /* the heap starts at addr */
};
#define MM_OPS_MAX (0x1000 / sizeof(struct mm_op))

/* One VMA as /proc/PID/maps shows it. */
struct map_entry {
        uint64_t start, end, off;
        uint32_t prot, flags;           /* flags: MAP_SHARED or MAP_PRIVATE, MAP_ENTRY_* */
        uint32_t file;                  /* file id, or FILE_NONE */
        uint32_t order;                 /* of its pages: PAGE_SIZE << order bytes each */
};
#define MAP_ENTRY_STACK 0x10000000u
#define MAP_ENTRY_HEAP  0x20000000u
#define MAP_ENTRY_LOCKED 0x40000000u
#define FILE_NONE       0u

/*
 * How the host names an object that it has mapped (EXIT_FILE_MAP and the like):
 *
 *   0..31   file id
 *   32..34  the PROT_* that a later mprotect must refuse (file not open for writing; noexec mount)
 *   40..47  order of its pages: they have PAGE_SIZE << order bytes
 */
static inline uint64_t object_word(uint32_t id, uint32_t refused, uint32_t order)
{
        return id | (uint64_t)refused << 32 | (uint64_t)order << 40;
}
static inline uint32_t object_id(uint64_t word) { return (uint32_t)word; }
static inline uint32_t object_refused(uint64_t word) { return word >> 32 & 7; }
static inline uint32_t object_order(uint64_t word) { return word >> 40 & 0xff; }

/* op: an enum exit_op; the host makes it EXIT_NONE when it has answered. */
struct exit_req { uint32_t op, pad; uint64_t a[6]; int64_t ret; uint64_t out[2]; };
struct upcall   { uint32_t op, pad; uint64_t a[4]; int64_t ret; };

/* Frames moved between a vCPU's list and the global one at a time. */
#define FRAME_BATCH 32
#define FRAMES_EACH 64                  /* of the cache, that a vCPU needs to make progress */
struct frame_list { uint32_t n; uint32_t f[2 * FRAME_BATCH - 1]; };

/*
 * A program that runs at kern's own privilege level may write into kern by accident.  What is never
 * written is mapped without W.  What must be writable has canaries between its parts; the host
 * looks at them at each exit (runtime/vm/vcpu.c).
 */
#define CANARY 0x5afe57ac6b0b1e55ull

/* What the host tells kern about a vCPU.  Mapped without W. */
struct vcpu_fixed {
        uint32_t number;                /* index of the block */
        uint32_t role;                  /* enum vcpu_role */
        uint32_t level;                 /* privilege level p: 0 or 3 */
        /* Of the thread and process that run on this vCPU.  A child of vfork runs on its
         * parent's. */
        uint32_t tid, pid;
        uint32_t pad;
        uint64_t fs_base, gs_base;      /* what FS and GS are to be when the vCPU starts */
        /* The argument of set_robust_list.  kern does not use it; vmruns of other processes read
         * it. */
        uint64_t robust_list;
        /* p = 3: IRET frame (rip cs rflags rsp ss) that carries the #PF stub to CPL 3 */
        uint64_t frame3_pf[5];
        uint64_t frame3_trap[5];        /* same, for the other exceptions */
};

#define LOOKAHEAD_ROOM 2048
#define POINTERS_ROOM  768

/* First page of a vCPU block. */
struct vcpu {
        uint64_t canary0;
        uint64_t line_pad0[7];

        /* Written by kern, read by kickers; a line of its own. */
        _Atomic uint32_t mode;          /* enum vcpu_mode */
        _Atomic uint32_t event;         /* EVENT_* set by kickers, cleared by kern */
        /* Flush epoch up to which this vCPU's TLB is clean (kern/base/flush.c). */
        _Atomic uint64_t flushed;
        /* Page address + 1 of a fault in progress, 0: none (kern/paging/fault.c). */
        _Atomic uint64_t faulting;
        uint64_t line_pad[5];

        uint64_t cr2;                   /* stored by the exception stubs */
        uint64_t entry_tsc;             /* when the fault being handled began */
        /* Odd while a guide of the program runs here (struct guide): written by kern; and the value
         * of a run that has taken too long: by the host, before it sets EVENT_GUIDE.  Both only
         * grow; relaxed, since the event orders them. */
        _Atomic uint32_t guide_run, guide_late;
        /* The same for kern, which looks at it in each fault: 0, or a bit of #PF's error code. */
        uint64_t guided;
        uint64_t canary1;

        struct exit_req exit;
        struct upcall   upcall;
        uint64_t canary2;
        struct regs     regs __attribute__((aligned(16)));
        uint64_t canary3;

        /* This vCPU's own reserve of free frames; only kern on this vCPU touches it. */
        struct frame_list frames;
        uint32_t reclaim_hand;          /* where its direct reclaim looks next */
        /* Writes of the bulk ring before this index are over and were reported
         * (kern/far/rings.c). */
        uint32_t writes_seen;
        /* What this vCPU's faults say about its next ones: a struct lookahead
         * (kern/pager/lookahead.h), which the host does not read. */
        uint64_t lookahead[LOOKAHEAD_ROOM / 8];
        uint64_t pointers[POINTERS_ROOM / 8];   /* likewise, a struct pointers (pointers.h) */
        uint64_t canary4;
};
/* The host has something to do: EXIT_EVENT before the program continues. */
#define EVENT_HOST 1u
/* The host changed more of regs than a system call returns: go back by iretq. */
#define EVENT_IRET 2u
/* vcpu.guide_late is new. */
#define EVENT_GUIDE 4u
/* With EVENT_HOST: whoever ran executed an instruction that only a kernel may. */
#define EVENT_PRIVILEGED 8u

/* Fault kinds, as the statistics count them. */
enum fault_kind {
        FAULT_ZERO, FAULT_FILE, FAULT_FETCH, FAULT_SHARED, FAULT_WAIT, FAULT_MARKER,
        FAULT_SPURIOUS, FAULT_KINDS
};
enum vcpu_counter {
        CNT_FETCHED, CNT_EVICTED_CLEAN, CNT_EVICTED_DIRTY, CNT_WRITEBACK, CNT_REFILLS,
        CNT_DOORBELLS, CNT_IO_DOORBELLS, CNT_FRAME_WAITS, CNT_DIRECT_RECLAIM, CNT_FLUSHES,
        CNT_KICKS, CNT_SYSCALLS_LOCAL, CNT_SYSCALLS_FORWARDED, CNT_SCANNED, CNT_EXITS,
        /* Pages asked for ahead; of these: used; touched while still under way; evicted unused.
         * Markers that were touched. */
        CNT_PREFETCHED, CNT_PREFETCH_HITS, CNT_PREFETCH_LATE, CNT_PREFETCH_WASTED, CNT_MARKERS,
        /* Of those asked for ahead: because a page points to them; because the program said so. */
        CNT_POINTED, CNT_HINTED,
        CNT_GUIDED,                     /* calls of guides */
        CNT_REPLAYED,                   /* and because a recorded run needed them next */
        CNT_ZEROED_AHEAD,               /* pages filled with zeroes before they were touched */
        CNT_READ_PARTS,                 /* times that bytes of a far page were read (vmg_read) */
        CNT_COUNT
};
/* Latencies that a vCPU measures, if control.stats_on: of each kind of fault but FAULT_SPURIOUS,
 * under its own number, and of these. */
enum latency {
        LAT_WRITEBACK = FAULT_SPURIOUS, /* a page to far memory, from the request to its end */
        LAT_SYSCALL,                    /* a forwarded system call */
        /* Parts of a fetch, of one in FETCH_SAMPLE, or of all (kern/base/latency.h). */
        LAT_HANDLER, LAT_QUEUE, LAT_WIRE, LAT_INSTALL,
        LATENCIES
};
#define FETCH_SAMPLE 64
/* Latency histogram: 8 buckets an octave of TSC ticks (common/buckets.h). */
#define HIST_SUB     3
#define HIST_BUCKETS (40 << HIST_SUB)

/* Written by one vCPU alone, and read by the host at any time.  All only grow, while the process
 * lives. */
struct vcpu_stats {
        uint64_t faults[FAULT_KINDS];
        uint64_t counter[CNT_COUNT];
        uint64_t exits[EXIT_OPS];       /* by op */
        /* Exits made between #PF and the return, by kind of fault. */
        uint64_t fault_exits[FAULT_KINDS];
        uint64_t ticks[LATENCIES];      /* the sum of each histogram */
        uint64_t hist[LATENCIES][HIST_BUCKETS];
};

/* A function of the program that faults in a range call (include/hints.h).  kern/space/guides.c
 * has the rules; the host reads it for the statistics. */
enum guide_end {
        GUIDE_RETURNED,
        GUIDE_TOUCHED,                  /* memory that was not here, or is not the program's */
        GUIDE_TRAPPED,                  /* another exception */
        GUIDE_CALLED,                   /* a system call that guides may not make */
        GUIDE_LATE,
        GUIDE_INTERRUPTED,              /* a signal came for the program, or all threads stop */
        GUIDE_ENDS
};
enum guide_state { GUIDE_FREE, GUIDE_ON, GUIDE_OFF, GUIDE_REMOVED };
#define GUIDES_MAX 64
#define GUIDE_NAME 64
struct guide {
        _Atomic uint32_t state;         /* enum guide_state.  Release: the rest is complete */
        _Atomic uint32_t running;       /* vCPUs that are in it; it is not reused meanwhile */
        uint64_t start, end;            /* the range */
        /* all of the range was mapped when the guide was made: it covers what is still there */
        uint64_t mapped;
        uint64_t fn, arg;
        uint64_t order;                 /* of two guides for a page, the one with the greater */
        _Atomic uint64_t ended[GUIDE_ENDS];     /* calls, by how they ended */
        char name[GUIDE_NAME];          /* as the program says it, NUL included */
};

/* A slab: a run of slots leased from one far tier.  Slot number = slab index << SLAB_SHIFT | page
 * in slab. */
#define SLAB_SHIFT  18                  /* at most 1 GiB a slab */
#define SLABS_MAX   4096
#define SLAB_NODES  64                  /* nodes are numbered below it */
/* MEMORY: kern copies.  REMOTE: by the rings.  TIMED: kern copies, when a network would have
 * brought the page. */
enum slab_kind { SLAB_MEMORY = 1, SLAB_REMOTE = 2, SLAB_TIMED = 3 };
struct slab {
        uint32_t kind;                  /* enum slab_kind */
        uint32_t pages;
        /* Not SLAB_REMOTE: address in FAR_WINDOW, same in guest and host. */
        uint64_t va;
        uint64_t gpa;
        uint32_t node, pad;
        uint64_t map_gpa;               /* of its struct slab_map (tree.h) */
        /* SLAB_TIMED, the same for all slabs of a node: ticks of the TSC; ticks a page, in units of
         * 2^-SLAB_TICK_SHIFT. */
        uint64_t latency, page_ticks;
};
#define SLAB_TICK_SHIFT 16

/* Rings of far memory: requests of a vCPU to the nodes behind SLAB_REMOTE slabs.  They are the
 * guest's NIC: the I/O thread of the host (runtime/far/io.c) takes entries off and moves the data.
 *
 * A read is over when the host has made the BUSY entry PRESENT (kern/pager/frame.h, page_fetched).
 * A write is over when `state` says so; until the service vCPU has seen that, it keeps the frame
 * claimed.
 *
 * tail is written by the vCPU (release: the entry is complete), head by the host (release: the
 * entry was copied and may be reused; the entry of a write only after its state says so too).
 * Both only grow, modulo 2^32. */
/* MARKER: a prefetch whose page becomes HELD, so that its first use is a fault. */
/* IO_PART, on the ring of demand reads: bytes of a page, to the same place of the page `frame`, the
 * vCPU's own beyond the cache (bounce_pages).  Where pages have sums their pieces are read, or all
 * of the page, and verified; IO_PART_RAW: no more than the bytes, as they come.  No entry names the
 * page; state says when it is over. */
/* IO_PROMOTE, on the ring of demand reads: a vCPU waits for the page that a prefetch into this
 * frame brings.  A hint, of which nothing comes back. */
enum io_op { IO_READ, IO_PREFETCH, IO_WRITE, IO_MARKER, IO_PART, IO_PART_RAW, IO_PROMOTE };
/* AWAITED: the vCPU sleeps on it, so wake it.  LOST, of a part: the page came wrong, twice; of a
 * write: the page is at no node, and its slot is DUE for good, so it goes to another one. */
enum io_state { IO_ASKED, IO_AWAITED, IO_OVER, IO_LOST };
struct io_entry {
        /* enum io_state.  Of writes and parts only: their entry is not reused before it is over. */
        _Atomic uint32_t state;
        uint32_t op, frame;
        uint16_t offset, len;           /* of a part: bytes, within the page */
        uint64_t slot;
        /* The vCPU's TSC when it asked: of a sampled read, and of a write with statistics; else
         * 0. */
        uint64_t asked;
};
#define IO_RING 128
struct io_ring {
        _Atomic uint32_t tail __attribute__((aligned(64)));
        _Atomic uint32_t head __attribute__((aligned(64)));
        struct io_entry entry[IO_RING] __attribute__((aligned(64)));
};
/* A ring a kind, so that a read for which the program waits is never queued behind anything else,
 * and prefetches do not wait for writes. */
struct io_rings {
        struct io_ring demand, bulk, prefetch;
        /* The demand read that was under way has failed: set by the host before it ends the fetch,
         * cleared by the vCPU, whose frame it still is. */
        _Atomic uint32_t read_failed __attribute__((aligned(64)));
        /* How many entries of the ring of prefetches are over: counted by the host, after their
         * entries have changed; a hint for the vCPU. */
        _Atomic uint32_t prefetches_over;
};

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

/* Shared by all vCPUs and the host. */
struct control {
        uint64_t canary0;
        uint32_t abi_version;
        uint32_t level;                 /* privilege level p */
        _Atomic uint32_t stats_on;      /* the host may change it at any time; a hint */
        uint32_t debug;                 /* leak check at exit, extra asserts */
        uint32_t overcommit;
        /* A page table entry with A=0 costs its first use a trap to the host (shadow paging): what
         * is brought in ahead then has A=1. */
        uint32_t shadow_paging;
        /* All threads, vmrun's own too, have the same one CPU: a hint, which the host may change
         * while the program runs. */
        _Atomic uint32_t one_cpu;
        uint32_t xsave;                 /* the CPU has XSAVE, and XCR0 is set */
        /* How the pager looks ahead (kern/pager/lookahead.h), which the host may change while the
         * program runs; hints. */
        _Atomic uint32_t prefetch_policy, prefetch_window, prefetch_history;
        /* Far memory is switched off: pages are evicted only when no frame is free.  The service
         * vCPU looks at it whenever it is woken (kern/paging/cleaner.c). */
        _Atomic uint32_t far_off;
        /* Parts of pages have been read, and verified (vmg_read).  A hint for the host. */
        _Atomic uint32_t parts_read;
        /* Fetches are timed whose number has none of these bits: one in FETCH_SAMPLE for the
         * statistics, all of them for a profile.  A hint, as stats_on; the host sets both. */
        _Atomic uint64_t fetch_mask;
        /* Addresses of a struct record_log and a struct replay (recorded.h); 0: none.  Set before
         * the program starts. */
        uint64_t record, replay;

        uint64_t nframes;               /* cache size in pages */
        uint64_t frames_off;            /* offset of frame 0 in the window; a multiple of 2 MiB */
        uint64_t extra_off, extra_end;  /* offsets of room behind them, for recorded.h */
        uint64_t frame_table;           /* address of struct frame[nframes] */
        /* Offsets in the window: unused pool pages, end of what is backed. */
        uint64_t pool_next, pool_end;
        uint64_t pool_max;              /* offset up to which the pool may grow */
        uint64_t profile;               /* address of a struct profile (profile.h); 0: none */
        /* What the far tiers can hold, in pages: grows when a node is added.  Orders nothing. */
        _Atomic uint64_t far_pages;
        /* Where the arena begins (memory/arena.h), and its bytes: below are RAM and far tiers. */
        uint64_t arena_gpa, arena_size;

        /* Soft limits in bytes, kept by kern. */
        uint64_t rlimit_as, rlimit_data, rlimit_stack, rlimit_memlock;
        uint64_t mmap_top;              /* mmap goes down from here */
        uint64_t mmap_min;              /* vm.mmap_min_addr */

        uint64_t canary1;
        _Atomic uint32_t nvcpus;        /* vCPU blocks in use: [0, nvcpus) */
        /* futex: incremented when frames become free and a vCPU waits for them */
        _Atomic uint32_t frames_seq;
        _Atomic uint32_t frames_waiters;
        /* vCPUs that sleep until the cleaner has freed some, but can do without: woken as waiters
         * are, and no reason for any verdict. */
        _Atomic uint32_t frames_wishers;
        /* The value of frames_seq when the cleaner found that it cannot free anything: far tiers
         * full, or all pinned; 0 once it has freed a frame again.  kern/paging/cleaner.c has the
         * table. */
        _Atomic uint32_t starved;
        _Atomic uint32_t service_seq;   /* futex of the sleeping service vCPU */
        _Atomic uint32_t service_asleep;
        /* Set by the host to quiesce the service vCPU, with no write under way, until it is
         * cleared. */
        _Atomic uint32_t service_hold;
        /* futex: the service vCPU is quiesced.  Stored by kern with release, for the vCPU that then
         * has the pager to itself. */
        _Atomic uint32_t service_held;
        /* The I/O thread sleeps: the vCPU that clears this rings DOORBELL_PORT. */
        _Atomic uint32_t io_asleep;
        /* The host wants all threads to stop (runtime/vm/stop.c). */
        _Atomic uint32_t stopping;
        /* TSC ticks for which a vCPU polls a BUSY entry before it sleeps (runtime/far/io.c). */
        _Atomic uint64_t wait_ticks;
        /* TSC ticks that copies from and to timed tiers took, for the statistics.  By kern. */
        _Atomic uint64_t wire_copied;
        uint64_t canary2;
        /* Last flush asked for (kern/base/flush.c). */
        _Atomic uint64_t flush_epoch __attribute__((aligned(64)));
        uint64_t canary3;

        struct time_page time __attribute__((aligned(64)));
        uint64_t tsc_khz;
        int64_t tsc_offset;             /* guest's TSC - host's, if time.valid; for the host */
        uint32_t nslabs;
        /* Moves when a node was added: EXIT_LEASE may succeed again.  Stored with release, after
         * the node is there. */
        _Atomic uint32_t nodes_added;
        /* This process's number in the tree (tree.h).  This field and the next are valid once there
         * is a slab. */
        uint32_t tree_number;
        uint32_t tree_pad;
        uint64_t tree_gpa;              /* of struct tree_common */
        uint64_t guides;                /* address of struct guide[GUIDES_MAX]; 0: none yet */
        uint64_t notices;               /* address of a struct notices (kern/pager/notices.h) */
        /* Address of kern's number of free frames, an _Atomic uint32_t; 0: kern is not up. */
        uint64_t free_frames;
        uint64_t canary4;
        struct slab slabs[SLABS_MAX];   /* filled by the host at EXIT_LEASE */
        uint64_t canary5;
};

/* Pages behind the frames, a vCPU one, numbered on from the cache's last frame.  A cache of few
 * frames has few vCPUs. */
static inline uint64_t bounce_pages(uint64_t nframes)
{
        uint64_t vcpus = nframes / FRAMES_EACH + 2;

        return vcpus < VCPUS_MAX ? vcpus : VCPUS_MAX;
}

/* Behind the bounce pages, for the host: see runtime/far/repair.c and scrub.c. */
#define REPAIR_FRAMES 32
#define SCRUB_FRAMES  8

static inline struct vcpu *vcpu_block(unsigned n)
{
        return (struct vcpu *)(WINDOW + VCPUS_OFF + (uint64_t)n * VCPU_BLOCK);
}
static inline struct vcpu_fixed *vcpu_fixed(struct vcpu *v)
{
        return (struct vcpu_fixed *)((char *)v + VCPU_FIXED_OFF);
}
static inline struct vcpu_stats *vcpu_stats(struct vcpu *v)
{
        return (struct vcpu_stats *)((char *)v + VCPU_STATS_OFF);
}
static inline void *vcpu_xfer(struct vcpu *v) { return (char *)v + VCPU_XFER_OFF; }
static inline struct io_rings *vcpu_rings(unsigned n)
{
        return (struct io_rings *)(WINDOW + RINGS_OFF + (uint64_t)n * RINGS_SIZE);
}
#define CONTROL ((struct control *)(WINDOW + CONTROL_OFF))

_Static_assert(sizeof(struct vcpu) <= 0x1000, "struct vcpu fits its page");
_Static_assert(sizeof(struct vcpu_stats) <= VCPU_STATS_SIZE, "struct vcpu_stats fits its pages");
_Static_assert(VCPU_FIXED_OFF % PAGE_SIZE + sizeof(struct vcpu_fixed) <= PAGE_SIZE,
               "struct vcpu_fixed fits its page");
_Static_assert(CONTROL_OFF + sizeof(struct control) <= VCPUS_OFF, "struct control fits its room");
_Static_assert(VCPUS_OFF + (uint64_t)VCPUS_MAX * VCPU_BLOCK <= RINGS_OFF,
               "vCPU blocks fit below the rings");
_Static_assert(sizeof(struct io_rings) <= RINGS_SIZE, "a vCPU's rings fit their room");
_Static_assert(RINGS_OFF + (uint64_t)VCPUS_MAX * RINGS_SIZE <= RAM_PD_OFF,
               "the rings fit below the page tables");
_Static_assert(RAM_PD_OFF + (WINDOW_END - WINDOW) / 0x40000000 * PAGE_SIZE <= POOL_OFF,
               "so do directories of the whole window");

#endif
