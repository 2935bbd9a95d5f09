/*
 * The futex operations that the end of a thread needs, and its robust list.
 */
#ifndef VMRUN_ROBUST_H
#define VMRUN_ROBUST_H

#include <stdbool.h>
#include <stdint.h>
#include "memory/gmem.h"
#include "vm/thread.h"

/* Wakes up to n waiters of the word.  Returns how many, or -errno. */
long futex_wake(struct thread *t, uint64_t addr, uint32_t n);
/* A waking command of futex(2) with its bits. */
long futex_wake_as(struct thread *t, uint64_t addr, uint64_t op, uint64_t n, uint64_t bits);

/* The word must be aligned and at an address of the program: 0 or -errno. */
long futex_bad_word(uint64_t addr);
/* Errors that the kernel finds in a futex word before all others.  A private word that is not
 * mapped is not an error. */
long futex_bad_key(struct thread *t, uint64_t addr, uint64_t op);
/* The flags for the host kernel, beside the command. */
uint64_t futex_flags(const struct gmem_word *w, uint64_t op);
/* A futex without FUTEX_PRIVATE_FLAG whose word lies in private memory: Linux then identifies it by
 * its page, which must be writable. */
bool futex_cannot_be_shared(struct thread *t, uint64_t addr, uint64_t op,
                            const struct gmem_word *w);

/* The thread with that tid ends: does what the kernel does for the robust list at head, in t's
 * memory. */
void robust_list_end(struct thread *t, uint64_t head, uint32_t tid);

#endif
