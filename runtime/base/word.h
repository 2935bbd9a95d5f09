/*
 * Sleeping on a word of vmrun, and waking the sleepers: the host's futex (futex(2)), private to
 * this address space, which the child of a vfork shares.
 */
#ifndef VMRUN_WORD_H
#define VMRUN_WORD_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while the word is `seen`, at most `limit` (NULL: no limit).  May return early: the caller
 * looks again. */
static inline void word_sleep(const void *word, uint32_t seen, const struct timespec *limit)
{
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
}

/* Wakes up to n threads that sleep on the word. */
static inline void word_wake(const void *word, int n)
{
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

#endif
