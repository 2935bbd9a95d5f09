/*
 * What this host offers: for memnode --check, and for clear messages at start.
 */
#ifndef MEMNODE_CHECK_H
#define MEMNODE_CHECK_H

#include <stdint.h>
#include <stddef.h>

/* Bytes of MemTotal, and of MemAvailable in *available; 0 if the kernel does not say. */
uint64_t check_memory(uint64_t *available);
/* The soft limits of locked memory and of descriptors become as large as the hard ones, or as large
 * as is ever wanted. */
void check_raise_limits(void);
/* Whether `bytes` may be pinned by this process: 0, or -EPERM with a sentence that has the cure. */
int check_memlock(uint64_t bytes, char *why, size_t n);
/* memnode --check: prints the report; returns the exit status, 0 if memnode could serve. */
int check_report(void);

#endif
