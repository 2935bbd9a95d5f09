/*
 * The two texts of a fault profile.
 */
#ifndef VMRUN_PROFILE_TEXTS_H
#define VMRUN_PROFILE_TEXTS_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "profile/code.h"
#include "profile/stacks.h"

/* A profile's numbers, and the program that they are of. */
struct profile_of {
        const struct stacks *stacks;
        uint64_t cut, lost, lost_ticks; /* as in struct profile */
        struct code *code;
        const char *program;
        pid_t pid;
        uint64_t tsc_khz;               /* 0: not known */
};

/* A line for each stack, "main;insert;memcpy 123", outermost first; the stack with most faults
 * comes first.  0, or -ENOMEM; the caller looks for errors of f. */
int profile_folded(const struct profile_of *of, FILE *f);
/* A table for people: a line for each place in the program, with its callers.  Returns as
 * profile_folded(). */
int profile_table(const struct profile_of *of, FILE *f);

#endif
