/*
 * Comparing secrets.
 */
#ifndef COMMON_SECRET_H
#define COMMON_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Whether n bytes are equal, in a time that does not tell where they differ: so nobody can guess a
 * secret byte by byte. */
bool secret_same(const void *a, const void *b, size_t n);

#endif
