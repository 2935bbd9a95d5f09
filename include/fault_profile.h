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
/* Once this many stacks are in use, a new stack is cut to its innermost address: so no call site is
 * lost. */
#define PROFILE_WHOLE  (PROFILE_STACKS / 4 * 3)

/* The faults with one stack. */
struct profile_stack {
        /* Made from the addresses; 0: unused.  The vCPU that changes it from 0 fills in the
         * rest. */
        _Atomic uint64_t key;
        /* Relaxed: they order nothing. */
        _Atomic uint64_t faults;
        _Atomic uint64_t late;          /* of these: the page was under way already */
        _Atomic uint64_t ticks;         /* ticks of the TSC for which these faults waited */
        _Atomic uint64_t touched;       /* the address of one of these faults */
        /* How many of at[]; 0: they are being filled in.  Stored with release, after them. */
        _Atomic uint32_t depth;
        /* 1: the next frame was in a page that was not here, so there may be more callers. */
        uint32_t part;
        /* The word at RSP, if it is an address of code: perhaps the caller of a function that keeps
         * no frame.  Else 0. */
        uint64_t top;
        /* First the address of the instruction that faulted, then the return address of each
         * call. */
        uint64_t at[PROFILE_DEPTH];
};

struct profile {
        _Atomic uint64_t used;          /* stacks */
        _Atomic uint64_t cut;           /* faults whose stack was cut, because the table was full */
        /* Faults that found no place in the table, and the ticks for which they waited. */
        _Atomic uint64_t lost, lost_ticks;
        struct profile_stack stack[PROFILE_STACKS];
};

#endif
