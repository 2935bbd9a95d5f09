/*
 * The border between a program that is linked with libvmguest (guestlib/) and kern.
 *
 * A program finds an entry HINTS_AUX in its auxiliary vector, whose value is the HINTS_VERSION that
 * its kern serves; natively there is none.  Then it may make the system calls below, which kern
 * serves without an exit.  Their numbers are beyond all of Linux's.  Arguments are IN, as a system
 * call's: rdi rsi rdx r10; rax is a number of 0 or more, or -errno.
 *
 * A call, once it is here, keeps number and meaning.  A new one, or a new number of HINT_STATS,
 * bumps HINTS_VERSION: an old kern answers -ENOSYS, and knows fewer numbers.
 */
#ifndef VMRUN_HINTS_H
#define VMRUN_HINTS_H

#include <stdint.h>

#define HINTS_AUX     0x766d6775        /* "vmgu" */
#define HINTS_VERSION 4

#define HINTS_FIRST   0x1000
enum hint_call {
        /* addr, bytes: asks for the pages of this range that are far, and does not wait.  How many
         * pages were asked for: what has no free frame is not. */
        HINT_PREFETCH = HINTS_FIRST,
        /* struct iovec *, how many, at most HINTS_RANGES: the same for each. */
        HINT_PREFETCHV,
        /* addr, bytes, stride in bytes (int64_t): the program is about to go through this range
         * once, from addr on, or down from its end where the stride is negative.  Pages asked for
         * at once; the rest follow while the program goes on. */
        HINT_STREAM,
        /* OUT uint64_t *, how many: the numbers of enum hint_number, as many as kern knows.  How
         * many those are. */
        HINT_STATS,
        /* --- version 2 --- */
        /* OUT void *, addr, bytes, at most HINTS_PEEK: copies what is here.  0; -EAGAIN: a part of
         * it is not. */
        HINT_PEEK,
        /* addr, bytes, function, argument, char name[HINTS_NAME]: a fault in this range calls the
         * function, as struct hint_fault says.  The name is for people.  0; -ENOSPC: there are too
         * many; -EAGAIN: vmrun can have no thread that watches over guides. */
        HINT_GUIDE,
        /* addr, bytes: guides whose range begins in this one are called no more.  Waits until none
         * of them runs.  How many they were. */
        HINT_UNGUIDE,
        /* OUT dst, src, bytes, HINT_READ_RAW or 0: copies bytes; pages of src that are far stay
         * far.  How many bytes: all of them.  Within a guide, from version 3 on: at most HINTS_PEEK
         * bytes; -EAGAIN: a part is not here, and what is far of it is asked for ahead. */
        HINT_READ,
        /* --- version 3 --- */
        /* struct iovec *, how many, at most HINTS_RANGES, INOUT uint32_t *: as HINT_PREFETCHV.  The
         * word, which is aligned and in private memory, is added as many pages of the ranges as are
         * then on their way, and is one less for each that has come, or will not.  How many were
         * added. */
        HINT_COUNTED,
        /* The word of HINT_COUNTED, HINT_WAIT_LOOK or 0: waits until it is 0.  0; -EINTR: a signal
         * is handled first; -EINVAL: it is not 0, and nothing on its way is counted there.  LOOK:
         * takes what has come, and does not wait: -EAGAIN: it is not 0. */
        HINT_WAIT,
        /* addr, bytes, enum hint_priority: which pages make room first.  Of the pages that the
         * range touches, those that the program has touched.  How many they are. */
        HINT_PRIORITY,
        /* --- version 4 --- */
        /* INOUT struct hint_guide *: the oldest guide that is younger than that of this order, 0:
         * the oldest of all.  1; 0: there is none, and nothing is written. */
        HINT_GUIDES,
        HINTS_END
};
enum hint_priority { HINT_NORMAL, HINT_HIGH, HINT_LOW };
#define HINTS_RANGES  1024
#define HINTS_PEEK    4096
#define HINTS_NAME    64
#define HINT_READ_RAW 1                 /* the sums of pages are not looked at */
#define HINT_WAIT_LOOK 1

/* A guide is called as `long guide(const struct hint_fault *, void *argument)`, by the thread that
 * faults, on a stack of kern's.  It may use memory that is here, and make the calls
 * HINT_PREFETCH, HINT_PREFETCHV, HINT_COUNTED, HINT_STREAM, HINT_STATS, HINT_PEEK and, from
 * version 3 on, HINT_READ; anything else ends it.  If it returns HINT_AGAIN for a page that is
 * MISSED, it is called again when that page has come. */
enum hint_event {
        HINT_MISSED = 1,                /* the page is under way, and the thread will wait for it */
        HINT_CAME,                      /* it is here; the thread goes on when the guide returns */
        /* The first use of a page that was asked for ahead: of those that one call in a guide asks
         * for, the first; of several ranges, the first of the one in the middle. */
        HINT_USED,
};
#define HINT_AGAIN 1
struct hint_fault {
        uint32_t size;                  /* of this struct */
        uint32_t event;                 /* enum hint_event */
        uint64_t addr;                  /* that the thread touches */
        uint64_t write;                 /* 1: to store; 0 */
        /* The thread's registers: rax rbx rcx rdx rsi rdi rbp rsp r8..r15 rip. */
        uint64_t reg[17];
};

/* Numbers of the whole process, which vmguest.h explains: struct vmg_stats, in its order. */
enum hint_number {
        HINT_CACHE, HINT_CACHE_FREE, HINT_FETCHED, HINT_PREFETCHED, HINT_PREFETCH_USED,
        HINT_PREFETCH_LATE, HINT_PREFETCH_WASTED, HINT_HINTED, HINT_EVICTED, HINT_WRITTEN_BACK,
        HINT_NUMBERS
};

/* A guide as it is now: what was unmapped or moved is no part of its range. */
struct hint_guide {
        uint64_t order;                 /* greater than those of all guides made before */
        uint64_t start, len, fn, arg;
};

#endif
