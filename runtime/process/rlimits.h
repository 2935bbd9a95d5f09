/*
 * Resource limits that the program sees and the host does not have, and how an execve passes them
 * on.
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
                /* set by the program, or raised on the host; if not, both are the host's */
                bool set;
        } memory[LIMITS_KEPT];
};

/* Before vmrun maps memory: fills k with the limits on memory that the program begins with, and
 * raises the host's soft limits of address space and data to the hard ones, for vmrun itself. */
void limits_begin(struct limits_kept *k);
/* The soft limit of the stack in k. */
uint64_t limits_stack(const struct limits_kept *k);
/* limits_keep() fills k for the next program; limits_adopt() applies it there, once CONTROL is
 * filled in. */
void limits_keep(struct limits_kept *k);
void limits_adopt(const struct limits_kept *k);
/* Sets the program's limits on the host, right before the execve of a program that runs natively.
 * *old: the argument of a second call that undoes the first.  Hard limits cannot be raised again
 * without privilege: hard_too only if the execve is sure to succeed. */
void limits_to_host(const struct limits_kept *k, bool hard_too, struct limits_kept *old);

/* prlimit64() of this process in the program's terms: { soft, hard } each; new or old may be
 * NULL. */
long limits_own(int res, const uint64_t new[2], uint64_t old[2]);
/* The calling thread's capabilities may have changed: CAP_IPC_LOCK lifts the limit of locked
 * memory.  Not for a child of vfork, whose rights are its own. */
void limits_look_at_rights(void);
/* prlimit64() with the host's own limits. */
long limits_host(int pid, int res, const uint64_t *new, uint64_t *old);
/* The soft limit that kern keeps; NULL: the host keeps this one. */
uint64_t *limits_kept_here(int res);

#endif
