/*
 * Reading the flat format: lines of a key, a blank and a value.
 */
#ifndef VMRUN_STATS_READ_H
#define VMRUN_STATS_READ_H

#include <stddef.h>
#include <stdint.h>

/* The number of that key; 0: there is none. */
uint64_t flat_number(const char *text, const char *key);
/* The rest of its line, cut to n - 1 bytes; "": there is none.  Returns `to`. */
const char *flat_text(const char *text, const char *key, char *to, size_t n);

#endif
