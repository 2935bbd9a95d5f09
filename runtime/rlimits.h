/*
 * Resource limits that the program sees and the host does not have: what becomes of them when it executes another.  (syscalls/limits.c)
 */
#ifndef VMRUN_RLIMITS_H
#define VMRUN_RLIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define LIMITS_KEPT 4                   /* RLIMIT_AS, DATA, STACK and MEMLOCK */

struct limits_kept {
        uint64_t nofile[2];             /* soft, hard */
        struct limit_kept {
                uint64_t soft, hard;
                bool set;               /* by the program: else both are the host's */
        } memory[LIMITS_KEPT];
};

/* For the program that is executed next, and there, once CONTROL is filled in. */
void limits_keep(struct limits_kept *k);
void limits_adopt(const struct limits_kept *k);
/* Makes them the host's own, for a program that is to run natively.  old: what to give to a second call that takes it back; may be NULL.
 * A hard limit cannot be raised again without privilege: so only right before execve. */
void limits_to_host(const struct limits_kept *k, struct limits_kept *old);

#endif
