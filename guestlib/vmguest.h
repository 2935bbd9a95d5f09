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
 * asked for: those for which the cache has no free room are not.  Natively: MADV_WILLNEED, and 0.
 * -EFAULT: beyond any program's memory. */
ssize_t vmg_prefetch(const void *addr, size_t len);

/* The same for n ranges, at most 1024 (else -EINVAL), in their order. */
ssize_t vmg_prefetchv(const struct iovec *range, int n);

/* The program is about to go through [addr, addr + len) once: one access each stride bytes, from
 * addr on; downwards from the end if stride is negative.  Pages are then asked for ahead of it from
 * the first on.  stride 0: -EINVAL.  Pages asked for at once.  Natively: nothing, and 0. */
ssize_t vmg_stream(const void *addr, size_t len, ptrdiff_t stride);

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
