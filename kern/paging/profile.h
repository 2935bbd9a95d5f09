/*
 * The fault profile: the program's stack at a fault that waited for far memory.
 */
#ifndef VMRUN_KERN_PROFILE_H
#define VMRUN_KERN_PROFILE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/kern.h"

/* Is there to be a profile?  The answer does not change while the program runs. */
static inline bool profiling(void) { return control.profile != 0; }

/* A fault at addr has waited for this many ticks, and may still wait. */
struct profile_wait {
        uint64_t addr, ticks;
        bool again;                     /* the fault is counted already */
        bool late;                      /* for a page that was under way already */
        bool in_call;                   /* a system call needed the page */
};
/* Adds the wait to the profile; profiling() is true.  No fault is published. */
void profile_add(const struct profile_wait *w);

#endif
