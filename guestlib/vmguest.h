/*
 * libvmguest: what a program can tell the pager of vmrun about its memory, and ask it.
 *
 * No call is needed: a program runs without any.  A program that knows what it will touch next can
 * say so, and does not wait for it.  Natively, all of this works too: a call is then the advice to
 * Linux that comes nearest, or does nothing.  vmguest(3) has a section on each call.
 *
 * Ranges are in bytes and need not be aligned.  A page is VMG_PAGE bytes.  Calls return 0 or more,
 * or -errno; they do not touch errno.  They may be made by any thread, and in signal handlers.
 */
#ifndef VMGUEST_H
#define VMGUEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VMG_PAGE 4096

/* The version of the interface that this process's vmrun serves; 0: natively. */
int vmg_version(void);

/* The pages of [addr, addr + len) that are far are asked for.  Does not wait.  Pages that were
 * asked for: those for which the cache has no free room are not.  Natively: nothing, and 0.
 * -EFAULT: beyond any program's memory. */
ssize_t vmg_prefetch(const void *addr, size_t len);

/* The same for n ranges, at most 1024 (else -EINVAL), in their order. */
ssize_t vmg_prefetchv(const struct iovec *range, int n);

/* The same, and *left tells when they have come: it is added as many pages of the ranges as are now
 * on their way, whoever asked for them, and is one less for each that has come, or will not.  So
 * one word may count for many calls; the program sets it to 0 before the first.  It is aligned and
 * in private memory, else -EINVAL.  How many were added.  Natively: 0, and nothing is added. */
ssize_t vmg_prefetchv_counted(const struct iovec *range, int n, uint32_t *left);
/* Waits until *left is 0.  -EINVAL: nothing that is on its way counts there. */
int vmg_wait(uint32_t *left);
/* Is *left 0?  1; 0: not yet.  Does not wait.  The word may be read by itself too, but where no
 * thread of vmrun's own moves pages they come only while the program makes calls or waits. */
int vmg_arrived(uint32_t *left);

/* The program is about to go through [addr, addr + len) once: one access each stride bytes, from
 * addr on; downwards from the end if stride is negative.  Pages are then asked for ahead of it from
 * the first on.  stride 0: -EINVAL.  Pages asked for at once.  Natively: nothing, and 0. */
ssize_t vmg_stream(const void *addr, size_t len, ptrdiff_t stride);

/* Copies len bytes from src to dst, as memcpy does.  Pages of src that are far stay far: no more
 * than these bytes is read of them, beside the cache; or, where pages have sums, their pieces of
 * 512 bytes, and once all of a page that left before the first call: so a program that will read
 * parts may call it early, with a len of 0.  flags: 0 or VMG_UNVERIFIED.  Returns len; -EFAULT: a
 * part cannot be read or written; -EIO: a far page cannot be read back.  After an error dst may
 * hold a part of the bytes.  Another thread that stores to them meanwhile may be seen in some and
 * not in others. */
ssize_t vmg_read(void *dst, const void *src, size_t len, unsigned flags);
/* The bytes are not compared with the sum of their piece: what the network or the node spoiled is
 * not noticed. */
#define VMG_UNVERIFIED 1u

/* How many pages of the range are here: touching those waits for no node.  -ENOMEM: a part of it is
 * not mapped. */
ssize_t vmg_resident(const void *addr, size_t len);

/* The pages that lie wholly in the range are not needed soon: they make room first. */
int vmg_cool(const void *addr, size_t len);

/* The content of the pages that lie wholly in the range is no longer needed.  They read as zeroes
 * from then on (private memory of no file), and nothing of them is written to a node. */
int vmg_drop(void *addr, size_t len);

/* The pages of the range are brought in, and stay until vmg_unpin() or munmap.  Counts against
 * RLIMIT_MEMLOCK: -ENOMEM beyond it.  Pins do not nest. */
int vmg_pin(const void *addr, size_t len);
int vmg_unpin(const void *addr, size_t len);

/* The pages that the range touches, and that the program has touched, make room later than others,
 * or earlier.  It stays so until it is said anew, and in children of fork().  How many pages they
 * are.  Natively: nothing, and 0. */
enum vmg_level { VMG_NORMAL, VMG_HIGH, VMG_LOW };
ssize_t vmg_priority(const void *addr, size_t len, enum vmg_level level);

/* Copies what is here: 0.  -EAGAIN: a part of the range is not, and dst may hold a part of it.
 * len: at most VMG_PAGE, else -EINVAL.  Waits for nothing, unless dst is far.  Natively:
 * memcpy(). */
int vmg_peek(void *dst, const void *src, size_t len);

/*
 * Guides: a function that runs when a thread waits for a page of a range, and asks for those that
 * it will need next.  docs/guides.md shows how to write one.
 *
 * It runs on the thread that faults, on a stack of 16 KiB, while the page is on its way.  It may
 * read and write memory that is here: what vmg_guide() pins, what vmg_pin() pinned, what vmg_peek()
 * copies.  It may call vmg_prefetch(), vmg_prefetchv(), vmg_prefetchv_counted(), vmg_stream(),
 * vmg_peek(), vmg_read(), vmg_stats() and vmg_version().  vmg_read() copies at most VMG_PAGE bytes
 * there; of what is not here it returns -EAGAIN, and has asked for it ahead.
 *
 * It is ended, and the thread goes on as without it, if it touches other memory, raises an
 * exception, makes another system call, takes 100 ms of processor time, or a signal comes.  Ended
 * three times by its own fault it is called no more; --stats counts and names it.
 */
enum vmg_event {
        VMG_MISSED = 1,                 /* the page is on its way, and the thread waits for it */
        VMG_CAME,                       /* it is here: a guide asked for that by VMG_AGAIN */
        VMG_USED,                       /* the first use of a page that was asked for ahead */
};
/* Registers in struct vmg_fault. */
enum vmg_register {
        VMG_RAX, VMG_RBX, VMG_RCX, VMG_RDX, VMG_RSI, VMG_RDI, VMG_RBP, VMG_RSP, VMG_R8, VMG_R9,
        VMG_R10, VMG_R11, VMG_R12, VMG_R13, VMG_R14, VMG_R15, VMG_RIP, VMG_REGISTERS
};
struct vmg_fault {
        uint32_t size;                  /* of this struct: a newer vmrun may know more */
        uint32_t event;                 /* enum vmg_event */
        uint64_t addr;                  /* that the thread touches */
        uint64_t write;                 /* 1: to store; 0 */
        uint64_t reg[VMG_REGISTERS];    /* of the thread */
};
/* Returns VMG_AGAIN to be called once more when the page has come (after VMG_MISSED), else 0. */
typedef long vmg_guide_fn(const struct vmg_fault *fault, void *arg);
#define VMG_AGAIN 1

/* Faults in [addr, addr + len) call fn; of several guides for an address, the one that was made
 * last.  Nothing needs to be mapped there yet.  Pins the object that has fn (a program of more than
 * 1 MiB: 16 KiB from fn on): -ENOMEM beyond RLIMIT_MEMLOCK.  -ENOSPC: there are 64 already.  A
 * child of fork() has the same guides.  Natively: nothing, and 0. */
int vmg_guide(const void *addr, size_t len, vmg_guide_fn *fn, void *arg);
/* Guides whose range begins in this one are called no more: how many they were.  None of them runs
 * when this returns.  Not within a guide or a signal handler. */
int vmg_unguide(const void *addr, size_t len);

/* Counts of this process since it began; pages if nothing else is said. */
struct vmg_stats {
        uint64_t cache;                 /* size of the local cache */
        uint64_t cache_free;            /* of these unused now */
        uint64_t fetched;               /* read back because somebody waited */
        uint64_t prefetched;            /* asked for ahead, by vmrun itself or by a call here */
        uint64_t prefetch_used;         /* of these: used */
        uint64_t prefetch_late;         /* of these: touched while still under way */
        uint64_t prefetch_wasted;       /* of these: evicted unused */
        uint64_t hinted;                /* of prefetched: by a call here */
        uint64_t evicted;
        uint64_t written_back;          /* of these: to far memory */
};
/* Fills the first size bytes (sizeof(struct vmg_stats)); fields that this vmrun does not know
 * become 0.  Natively: all 0, and -ENOSYS. */
int vmg_stats(struct vmg_stats *stats, size_t size);

#ifdef __cplusplus
}
#endif

#endif
