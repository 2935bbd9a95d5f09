/*
 * The border between a program that is linked with libvmguest (guestlib/) and kern.
 *
 * A program finds an entry HINTS_AUX in its auxiliary vector, whose value is the HINTS_VERSION that
 * its kern serves; natively there is no such entry.  With it, the program may make the system calls
 * below, which kern serves without an exit.  Their numbers are beyond all of Linux's.  Arguments
 * are IN, as a system call's: rdi rsi rdx r10; rax is a number of 0 or more, or -errno.
 *
 * A call that is listed here keeps its number and its meaning.  A new call, or a new number of
 * HINT_STATS, bumps HINTS_VERSION: an old kern answers -ENOSYS, and knows fewer numbers.
 */
#ifndef VMRUN_HINTS_H
#define VMRUN_HINTS_H

#include <stdint.h>

#define HINTS_AUX     0x766d6775        /* "vmgu" */
#define HINTS_VERSION 4

#define HINTS_FIRST   0x1000
enum hint_call {
        /* addr, bytes: asks for the pages of this range that are far, and does not wait.  Returns
         * how many pages were asked for; a page for which no frame is free is not asked for. */
        HINT_PREFETCH = HINTS_FIRST,
        /* struct iovec *, how many, at most HINTS_RANGES: HINT_PREFETCH for each range. */
        HINT_PREFETCHV,
        /* addr, bytes, stride in bytes (int64_t): the program is about to go through this range
         * once, from addr on, or down from its end where the stride is negative.  Returns how many
         * pages were asked for at once; kern asks for the rest while the program proceeds. */
        HINT_STREAM,
        /* OUT uint64_t *, how many: the numbers of enum hint_number, as many as kern knows.
         * Returns how many kern knows. */
        HINT_STATS,
        /* --- version 2 --- */
        /* OUT void *, addr, bytes, at most HINTS_PEEK: copies memory that is here.  0; -EAGAIN: a
         * part of it is not here. */
        HINT_PEEK,
        /* addr, bytes, function, argument, char name[HINTS_NAME]: a fault in this range calls the
         * function, as struct hint_fault says.  The name is for people.  0; -ENOSPC: there are too
         * many; -EAGAIN: vmrun cannot start the thread that watches over guides. */
        HINT_GUIDE,
        /* addr, bytes: guides whose range begins in this range are called no more.  Waits until
         * none of them runs.  Returns how many guides these were. */
        HINT_UNGUIDE,
        /* OUT dst, src, bytes, HINT_READ_RAW or 0: copies bytes; pages of src that are far stay
         * far.  Returns the number of bytes, which is all of them.  Within a guide, from version 3
         * on: at most HINTS_PEEK bytes; -EAGAIN: a part is not here, and kern asks ahead for its
         * far pages. */
        HINT_READ,
        /* --- version 3 --- */
        /* struct iovec *, how many, at most HINTS_RANGES, INOUT uint32_t *: as HINT_PREFETCHV.  The
         * word is aligned and in private memory.  kern adds to it the number of pages of the ranges
         * that are then on their way, and takes one off for each page that has come, or will not
         * come.  Returns the number added. */
        HINT_COUNTED,
        /* The word of HINT_COUNTED, HINT_WAIT_LOOK or 0: waits until the word is 0.  0; -EINTR: a
         * signal is handled first; -EINVAL: the word is not 0, and counts no page that is on its
         * way.  LOOK: delivers pages that have come, and does not wait; -EAGAIN: the word is not
         * 0. */
        HINT_WAIT,
        /* addr, bytes, enum hint_priority: sets which pages are evicted first: those pages of the
         * range that the program has touched.  Returns how many they are. */
        HINT_PRIORITY,
        /* --- version 4 --- */
        /* INOUT struct hint_guide *: the oldest guide that is younger than the guide of this order;
         * order 0: the oldest of all.  Returns 1; or 0: there is no such guide, and nothing is
         * written. */
        HINT_GUIDES,
        HINTS_END
};
enum hint_priority { HINT_NORMAL, HINT_HIGH, HINT_LOW };
#define HINTS_RANGES  1024
#define HINTS_PEEK    4096
#define HINTS_NAME    64
#define HINT_READ_RAW 1                 /* the sums of pages are not verified */
#define HINT_WAIT_LOOK 1

/* A guide is called as `long guide(const struct hint_fault *, void *argument)`, by the thread that
 * faults, on a stack of kern's.  The guide may use memory that is here, and make the calls
 * HINT_PREFETCH, HINT_PREFETCHV, HINT_COUNTED, HINT_STREAM, HINT_STATS, HINT_PEEK and, from version
 * 3 on, HINT_READ; any other access or call ends it.  If it returns HINT_AGAIN for a page that is
 * MISSED, kern calls it again when that page has come. */
enum hint_event {
        HINT_MISSED = 1,                /* the page is under way, and the thread will wait for it */
        /* the page is here; the thread continues when the guide returns */
        HINT_CAME,
        /* The first use of a page that was asked for ahead, and marked.  A call in a guide marks
         * the first page that it asks for; a call for several ranges, the first page of the range
         * in the middle. */
        HINT_USED,
};
#define HINT_AGAIN 1
struct hint_fault {
        uint32_t size;                  /* of this struct */
        uint32_t event;                 /* enum hint_event */
        uint64_t addr;                  /* the address that the thread touches */
        uint64_t write;                 /* 1: to store; 0 */
        /* The thread's registers: rax rbx rcx rdx rsi rdi rbp rsp r8..r15 rip. */
        uint64_t reg[17];
};

/* Numbers of the whole process, in the order of struct vmg_stats, which vmguest.h explains. */
enum hint_number {
        HINT_CACHE, HINT_CACHE_FREE, HINT_FETCHED, HINT_PREFETCHED, HINT_PREFETCH_USED,
        HINT_PREFETCH_LATE, HINT_PREFETCH_WASTED, HINT_HINTED, HINT_EVICTED, HINT_WRITTEN_BACK,
        HINT_NUMBERS
};

/* A guide as it is now: memory that was unmapped or moved is no part of its range. */
struct hint_guide {
        uint64_t order;                 /* greater than those of all guides made before */
        uint64_t start, len, fn, arg;
};

#endif
