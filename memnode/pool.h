/*
 * The memory that memnode serves: one range, taken at start.  Leases and exports are parts of it.
 */
#ifndef MEMNODE_POOL_H
#define MEMNODE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes `size` bytes in pages of hugepage bytes (1 GiB, 2 MiB or 4 KiB).  0, or -errno with one
 * sentence in why. */
int pool_open(uint64_t size, uint64_t hugepage, char *why, size_t n);
/* Nothing more is given out, and no thread waits for memory any more. */
void pool_end(void);
/* The memory is gone: no thread may be at work in it. */
void pool_close(void);
/* What the kernel says of huge pages of that many bytes: "nr_hugepages", how many there are, or
 * "free_hugepages"; 0 too if it knows none. */
uint64_t pool_hugepages(uint64_t hugepage, const char *which);
/* What to do so that `bytes` of huge pages are free, as the end of a sentence. */
void pool_hugepages_cure(uint64_t bytes, uint64_t hugepage, char *cure, size_t n);
/* `bytes` in one piece, page-aligned, all zero; NULL if there is no such piece, and 30 s of zeroing
 * make none.  Any thread, like all that follow. */
char *pool_alloc(uint64_t bytes);
/* The same, but it does not wait.  *soon: there is none, but zeroing may make one. */
char *pool_try(uint64_t bytes, bool *soon);
/* Gives it back.  The caller has made sure that no client can reach it any more.  It is zeroed
 * before it is given out again. */
void pool_free(char *at, uint64_t bytes);
/* The first byte of [at, end) that may be no zero, and in *stop the end of those that follow; NULL:
 * all are zero.  Makes no memory of what was never used.  One thread. */
const char *pool_data(const char *at, const char *end, const char **stop);
uint64_t pool_size(void);
uint64_t pool_left(void);               /* bytes not given out */

#endif
