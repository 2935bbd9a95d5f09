/*
 * Guides: functions of the program that fault in a range call (include/hints.h).
 * kern/space/guides.c has the rules; the host reads them for the statistics.
 */
#ifndef VMRUN_ABI_GUIDE_H
#define VMRUN_ABI_GUIDE_H

#include <stdint.h>

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
        /* What each fault reads; written under kern's lock of the table. */
        _Alignas(64) _Atomic uint32_t state;    /* enum guide_state.  Release: the rest is there */
        _Atomic uint64_t start, end;    /* the range */
        _Atomic uint64_t order;         /* if two guides cover a page, the greater order wins */
        uint64_t fn, arg;
        /* 1: all of the range was mapped when the guide was made; after an unmap the guide covers
         * the rest of it */
        uint64_t mapped;
        /* vCPUs that run the guide; the entry is not reused meanwhile */
        _Alignas(64) _Atomic uint32_t running;
        _Atomic uint64_t ended[GUIDE_ENDS];     /* calls, by how they ended */
        char name[GUIDE_NAME];          /* as the program gave it, NUL included */
};

#endif
