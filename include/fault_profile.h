/*
 * The fault profile (vmrun --profile): where in the program faults waited for far memory.
 *
 * kern fills the table (kern/paging/profile.c), all vCPUs at once.  The host gives it zeroed, in
 * the pool, and reads it while all threads of the program stand still (runtime/profile/).
 */
#ifndef VMRUN_FAULT_PROFILE_H
#define VMRUN_FAULT_PROFILE_H

#include <stdatomic.h>
#include <stdint.h>

#define PROFILE_DEPTH  32               /* addresses of a stack */
#define PROFILE_STACKS 16384            /* a power of two */
/* From so many on, a new stack is cut to its innermost address: so no call site is lost. */
#define PROFILE_WHOLE  (PROFILE_STACKS / 4 * 3)

/* The faults with one stack. */
struct profile_stack {
        /* Made from the addresses; 0: unused.  The vCPU that changes it from 0 fills in the
         * rest. */
        _Atomic uint64_t key;
        /* Relaxed: they order nothing. */
        _Atomic uint64_t faults;
        _Atomic uint64_t late;          /* of these: the page was under way already */
        _Atomic uint64_t ticks;         /* of the TSC, that they waited for */
        _Atomic uint64_t touched;       /* the address that one of them was at */
        /* How many of at[]; 0: they are being filled in.  Stored with release, after them. */
        _Atomic uint32_t depth;
        /* 1: the next frame was in a page that was not here, so there may be more callers. */
        uint32_t part;
        /* The word at RSP, if it is an address of code: then a function that keeps no frame was
         * called from there, perhaps.  Else 0. */
        uint64_t top;
        /* First the instruction that was under way, then where each call returns to. */
        uint64_t at[PROFILE_DEPTH];
};

struct profile {
        _Atomic uint64_t used;          /* stacks */
        _Atomic uint64_t cut;           /* faults whose stack was cut, because the table was full */
        /* Faults that found no place at all, and the ticks that they waited for. */
        _Atomic uint64_t lost, lost_ticks;
        struct profile_stack stack[PROFILE_STACKS];
};

#endif
