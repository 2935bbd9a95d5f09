/*
 * libvmguest: calls by which a program tells vmrun's pager about its memory, and asks about it.
 *
 * No call is needed: a program runs without any.  A program that knows which pages it will touch
 * next can name them, and then does not wait for them.  Natively, all calls work too: a call is
 * then the nearest advice to Linux, or does nothing.  vmguest(3) has a section on each call.
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

/* Asks for the pages of [addr, addr + len) that are far.  Does not wait.  Returns how many pages
 * were asked for; a page for which the cache has no free room is not.  Natively: nothing, and 0.
 * -EFAULT: beyond any program's memory. */
ssize_t vmg_prefetch(const void *addr, size_t len);

/* vmg_prefetch() for each of n ranges, at most 1024 (else -EINVAL), in their order. */
ssize_t vmg_prefetchv(const struct iovec *range, int n);

/* vmg_prefetchv(), and *left tells when the pages have come.  The call adds to *left the number of
 * pages of the ranges that are then on their way, also if an earlier call or vmrun itself asked for
 * them.  Each page that has come, or will not come, takes one off.  So one word may count for many
 * calls; the program sets it to 0 before the first.  The word is aligned and in private memory,
 * else -EINVAL.  Returns the number added.  Natively: 0, and nothing is added. */
ssize_t vmg_prefetchv_counted(const struct iovec *range, int n, uint32_t *left);
/* Waits until *left is 0.  -EINVAL: it is not 0, and counts no page that is on its way. */
int vmg_wait(uint32_t *left);
/* Is *left 0?  1; 0: not yet.  Does not wait.  The word may be read by itself too, but where no
 * thread of vmrun's own moves pages they come only while the program makes calls or waits. */
int vmg_arrived(uint32_t *left);

/* The program is about to go through [addr, addr + len) once: one access each stride bytes, from
 * addr on; downwards from the end if stride is negative.  From the first access on, pages are asked
 * for ahead of the program.  Returns how many pages were asked for at once.  stride 0: -EINVAL.
 * Natively: nothing, and 0. */
ssize_t vmg_stream(const void *addr, size_t len, ptrdiff_t stride);

/* Copies len bytes from src to dst, as memcpy does.  Pages of src that are far stay far: only these
 * bytes are read of them, beside the cache.  Where pages have sums, the pieces of 512 bytes that
 * hold these bytes are read.  A page with a sum that was evicted before the first call is read once
 * as a whole.  So a program that will read parts may call vmg_read() early, with a len of 0.
 * flags: 0 or VMG_UNVERIFIED.  Returns len; -EFAULT: a part cannot be read or written; -EIO: a far
 * page cannot be read back.  After an error dst may hold a part of the bytes.  If another thread
 * stores to these bytes meanwhile, some may be old and some new. */
ssize_t vmg_read(void *dst, const void *src, size_t len, unsigned flags);
/* The bytes are not compared with the sum of their piece: damage by the network or the node is not
 * noticed. */
#define VMG_UNVERIFIED 1u

/* How many pages of the range are here: touching these pages waits for no node.  -ENOMEM: a part of
 * the range is not mapped. */
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
 * or earlier.  They keep their level until another call sets it, and keep it in children of fork().
 * Returns how many pages they are.  Natively: nothing, and 0. */
enum vmg_level { VMG_NORMAL, VMG_HIGH, VMG_LOW };
ssize_t vmg_priority(const void *addr, size_t len, enum vmg_level level);

/* Copies memory that is here: 0.  -EAGAIN: a part is not here, and dst may hold a part of the
 * bytes.  len: at most VMG_PAGE, else -EINVAL.  Waits for nothing, unless dst is far.  Natively:
 * memcpy(). */
int vmg_peek(void *dst, const void *src, size_t len);

/*
 * A guide is a function that runs when a thread waits for a page of a range.  It asks for the pages
 * that the thread will need next.  vmguest(3) says how to write a guide.
 *
 * It runs on the thread that faults, on a stack of 16 KiB, while the page is on its way.  It may
 * read and write memory that vmg_guide() or vmg_pin() has pinned, and read other memory that is
 * here by vmg_peek().  It may call vmg_prefetch(), vmg_prefetchv(), vmg_prefetchv_counted(),
 * vmg_stream(), vmg_peek(), vmg_read(), vmg_stats() and vmg_version().  In a guide vmg_read()
 * copies at most VMG_PAGE bytes; if a part is not here it asks ahead for its far pages, and returns
 * -EAGAIN.
 *
 * A guide is ended if it touches other memory, raises an exception, makes another system call,
 * takes 100 ms of processor time, or if a signal comes.  The thread then continues as without it.
 * A guide that was ended three times by its own fault is not called again; --stats counts and names
 * it.
 */
enum vmg_event {
        VMG_MISSED = 1,                 /* the page is on its way, and the thread waits for it */
        VMG_CAME,                       /* the page is here; the guide had returned VMG_AGAIN */
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

/* Faults in [addr, addr + len) call fn; of several guides for an address, only the guide that was
 * made last is called.  Nothing needs to be mapped there yet.  Pins the object that has fn (a
 * program of more than 1 MiB: 16 KiB from fn on): -ENOMEM beyond RLIMIT_MEMLOCK.  -ENOSPC: there
 * are 64 guides already.  A child of fork() has its parent's guides.  Natively: nothing, and 0. */
int vmg_guide(const void *addr, size_t len, vmg_guide_fn *fn, void *arg);
/* Guides whose range begins in this range are called no more.  Returns how many guides these were;
 * none of them runs then.  Not within a guide or a signal handler. */
int vmg_unguide(const void *addr, size_t len);

/* Counts of this process since it began; pages if nothing else is said. */
struct vmg_stats {
        uint64_t cache;                 /* size of the local cache */
        uint64_t cache_free;            /* of these unused now */
        uint64_t fetched;               /* read back because a thread waited */
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
