/*
 * Resource limits that the program sees and the host does not have: what becomes of them when it
 * executes another.
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
/* Makes them the host's own, right before an execve of a program that is to run natively.  *old:
 * what a second call takes to undo the first, but for hard limits, which cannot be raised again
 * without privilege: hard_too only if the execve is to succeed. */
void limits_to_host(const struct limits_kept *k, bool hard_too, struct limits_kept *old);

/* prlimit64() of this process in the program's terms: { soft, hard } each; new or old may be
 * NULL. */
long limits_own(int res, const uint64_t new[2], uint64_t old[2]);
/* The same of the host's. */
long limits_host(int pid, int res, const uint64_t *new, uint64_t *old);
/* The soft limit that kern keeps; NULL: the host keeps this one. */
uint64_t *limits_kept_here(int res);

#endif
