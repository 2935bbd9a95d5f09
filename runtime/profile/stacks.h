/*
 * The stacks of a fault profile, out of kern's table.
 */
#ifndef VMRUN_STACKS_H
#define VMRUN_STACKS_H

#include <stddef.h>
#include <stdint.h>
#include "include/fault_profile.h"
#include "profile/code.h"

/* The faults with one stack.  Two of these may have equal addresses. */
struct stack {
        uint64_t faults, late, ticks;   /* as in struct profile_stack */
        uint64_t touched;
        unsigned n;                     /* addresses, innermost first; 0: they are not known */
        bool part;                      /* there may be more of them */
        uint64_t at[PROFILE_DEPTH + 1];
};

struct stacks { struct stack *s; size_t n; };

/* Reads the table, whose content may be anything, since the program may have written there.  A call
 * that left no frame is put in.  Callers that kern could not see are taken from the other stacks
 * that begin alike, as far as all of these agree.  0 or -ENOMEM; the caller frees s->s. */
int stacks_read(struct stacks *s, const struct profile *p, struct code *c);

#endif
