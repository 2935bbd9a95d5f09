/*
 * Futexes in the program's memory, as far as the end of a thread needs them; and its robust list.
 */
#ifndef VMRUN_ROBUST_H
#define VMRUN_ROBUST_H

#include <stdbool.h>
#include <stdint.h>
#include "memory/gmem.h"
#include "vm/thread.h"

/* Wakes up to n that wait on the word: how many, or -errno. */
long futex_wake(struct thread *t, uint64_t addr, uint32_t n);
/* The same with a command of futex(2) and its bits. */
long futex_wake_as(struct thread *t, uint64_t addr, uint64_t op, uint64_t n, uint64_t bits);

/* A word must be of the program, and aligned: 0 or -errno. */
long futex_bad_word(uint64_t addr);
/* What the kernel finds wrong with a word before it looks at anything else: that a private one is
 * not there is no error. */
long futex_bad_key(struct thread *t, uint64_t addr, uint64_t op);
/* What the host kernel is told beside the command. */
uint64_t futex_flags(const struct gmem_word *w, uint64_t op);
/* A word that is to be shared, but lies in memory of this process alone: Linux then names it by its
 * page, which must be writable. */
bool futex_cannot_be_shared(struct thread *t, uint64_t addr, uint64_t op,
                            const struct gmem_word *w);

/* The thread with that tid ends: what the kernel does for the robust list at head, in t's
 * memory. */
void robust_list_end(struct thread *t, uint64_t head, uint32_t tid);

#endif
