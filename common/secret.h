/*
 * Comparing secrets.
 */
#ifndef COMMON_SECRET_H
#define COMMON_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Whether n bytes are equal, in a time that does not depend on where they differ.  So a secret
 * cannot be guessed byte by byte. */
bool secret_same(const void *a, const void *b, size_t n);

#endif
