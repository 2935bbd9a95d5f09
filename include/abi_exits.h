/*
 * Exits and upcalls: requests between kern (in the guest) and vmrun (on the host).
 *
 * kern asks the host by an exit: it fills vcpu.exit and executes OUT to EXIT_PORT; the host answers
 * in vcpu.exit.ret and resumes.  Before it answers, the host may ask kern by an upcall: it fills
 * vcpu.upcall and resumes; kern performs it inside the pending exit and comes back with
 * EXIT_UPCALL_DONE.  Upcalls may exit in turn (a file page to read), so the two nest like calls;
 * nothing of vcpu.exit survives an upcall.
 */
#ifndef VMRUN_ABI_EXITS_H
#define VMRUN_ABI_EXITS_H

#include <stdint.h>
#include "layout.h"

/* A flag in the vector of an exception: no exception happened, but the program executed `int n`,
 * through a gate whose exception pushes an error code. */
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
         * flags, and answers -ENODEV if a mapping of it may end beyond 2^63 (devices, pipes,
         * folders, /proc/self/mem).  ret: 0 or -errno.  out[0] object_word().  Private: its id has
         * one reference.  Shared: none of its own, it lives as long as its arena range; out[1]
         * guest-physical address.  In a file of huge pages the length is rounded up to them. */
        EXIT_FILE_MAP,
        /* MAP_SHARED|MAP_ANONYMOUS.  a[0] length.  Answers as a shared EXIT_FILE_MAP. */
        EXIT_ANON_SHARED,
        /* shmat.  a[0] shmid, a[1] of the flags SHM_RDONLY and SHM_EXEC.  ret: length in bytes,
         * whole pages, or -errno; out[] as of a shared EXIT_FILE_MAP. */
        EXIT_SHM_ATTACH,
        /* For mremap: maps the object of file a[1] once more, from the page on that is in the arena
         * at a[0] (guest-physical address), with length a[2] (bytes, whole pages).  ret: 0 or
         * -errno; out[1] as of a shared EXIT_FILE_MAP. */
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
         * is in control.slabs; -EAGAIN: the host freed slots of dead processes instead, or will at
         * the next EXIT_LEASE; -EBUSY: every tier is used up, but other processes may free slots;
         * -ENOSPC: every tier is used up for good. */
        EXIT_LEASE,
        /* Cache and far memory are full.  Returns, unless a node that does not answer is the cause:
         * then the host ends the program with a message. */
        EXIT_NO_MEMORY,
        /* Releases shared slots.  a[0] address of uint64_t[] in the window, a[1] how many. */
        EXIT_SLOTS_RELEASE,
        /* Memory for the queues to a node that kern drives by itself (abi_direct.h).  a[0] the
         * node, a[1] to a[4] addresses of zeroed struct direct_queue in the window, with node and
         * number.  ret: guest-physical address of DIRECT_RINGS bytes for their rings; the host
         * makes the queues UP when they are there.  -EOPNOTSUPP: there will be none. */
        EXIT_DIRECT,
        /* The doorbell of such a queue.  a[0] the node, a[1] the number of the queue, a[2] 1: not
         * for the first time, so the I/O side looks whether the node is there.  Does the work of
         * the I/O thread, too, if there is none.  ret: 0; -EACCES: the kernel does not let this
         * thread ring, and a thread of vmrun does it. */
        EXIT_DIRECT_RING,

        /* --- waiting and waking --- */

        /* Sleeps until control.frames_seq differs from a[0].  ret: 0, spurious returns allowed. */
        EXIT_WAIT_FRAMES,
        /* Wakes all vCPUs that sleep in EXIT_WAIT_FRAMES. */
        EXIT_WAKE_FRAMES,
        /* Service vCPU: sleeps until control.service_seq differs from a[0]. */
        EXIT_SERVICE_SLEEP,
        /* Doorbell: wakes the service vCPU. */
        EXIT_SERVICE_WAKE,
        /* Service vCPU: takes the stocks of free frames of vCPUs that are in the host, and tells
         * others to give theirs back (EVENT_STOCK).  a[0] address of a struct exit_stocks
         * (abi_vcpu.h). */
        EXIT_STOCKS,
        /* Sleeps until the 4 bytes at a[0] (in the window) differ from a[1], at most 100 ms, or
         * a[3] nanoseconds if that is not 0 and less; spurious returns allowed.  a[2]: 0: far
         * memory changes them, so this exit does the work of the I/O thread meanwhile, if there is
         * none; 1: another vCPU changes them. */
        EXIT_WAIT_PTE,
        /* Wakes the vCPUs that sleep on a[0], at most a[1]; 0: all. */
        EXIT_WAKE_PTE,
        /* Sends the kick signal to vCPUs.  a[0] address of a struct exit_kick. */
        EXIT_KICK,
        /* Lets another thread run: the holder of a lock may not be running. */
        EXIT_YIELD,
        /* Refreshes control.time. */
        EXIT_TIME,
        /* EVENT_HOST was set: the host handles the event.  a[0] 1: a guide ran until now, so an
         * instruction that trapped was the guide's. */
        EXIT_EVENT,
        /* control.stopping, and kern holds nothing: returns when threads may continue. */
        EXIT_PAUSE,
        /* The program has guides: the host watches for a guide that takes too long.  ret: 0, or
         * -EAGAIN: the host cannot start a thread for that. */
        EXIT_GUIDES,
        EXIT_OPS
};

struct exit_kick {
        /* IN */
        uint64_t vcpus[VCPUS_MAX / 64]; /* a set: bit n % 64 of word n / 64 is vCPU n */
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
        /* Copies VMAs that end above a[0] to xfer, as struct map_entry.  ret: how many (0: no
         * more). */
        UPCALL_MAPS,
        /* A file object was truncated.  a[0] file id, a[1] pages left: drops the entries past them,
         * entries of private copies too.  ret: how many dropped entries led to the arena. */
        UPCALL_OBJECT_CUT,

        /* --- fork (fork_state.h) --- */

        /* struct fork_state to xfer.  ret: 0. */
        UPCALL_FORK_STATE,
        /* struct fork_vma to xfer, for VMAs that end above a[0].  ret: how many (0: no more). */
        UPCALL_FORK_VMAS,
        /* struct fork_page to xfer, from address a[0] on.  a[1]: dirty pages that may be copied to
         * the child instead of written back (cheaper); a[2]: how many may be copied when no slot
         * can be allocated.  ret: how many (0: no more), or -ENOMEM. */
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
        /* This vCPU's thread ends: kern gives back the frames that the vCPU holds. */
        UPCALL_THREAD_END,
        UPCALL_OPS
};

/* Memory that the program uses, in pages.  OUT.  Other vCPUs change the counters meanwhile, so sums
 * may be off by a few. */
struct mm_usage {
        uint64_t mapped, mapped_peak;   /* now, and the peak */
        uint64_t data, locked;          /* of these: private and writable, and mlocked */
        uint64_t resident, resident_peak; /* frames of the cache in use */
        /* Slots of the far tiers in use, including those whose page is also resident. */
        uint64_t far;
};

/* A memory operation of the loader.  The code that serves the program's own system call performs
 * it. */
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

#endif
