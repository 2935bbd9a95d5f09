/*
 * Arithmetic of pages and ranges.  Lengths and counts are in bytes unless called pages.
 */
#ifndef VMRUN_PAGE_H
#define VMRUN_PAGE_H

#include <stdint.h>
#include "layout.h"

#define PAGE_MASK (~(uint64_t)(PAGE_SIZE - 1))

/* Rounds up; 0 if that overflows. */
static inline uint64_t page_align(uint64_t n) { return (n + PAGE_SIZE - 1) & PAGE_MASK; }
static inline uint64_t page_count(uint64_t bytes) { return bytes >> PAGE_SHIFT; }
static inline uint64_t page_off(uint64_t addr) { return addr & (PAGE_SIZE - 1); }
static inline uint64_t lower(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t higher(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
