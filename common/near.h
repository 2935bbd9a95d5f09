/*
 * The word that a person meant.
 */
#ifndef COMMON_NEAR_H
#define COMMON_NEAR_H

#include <stddef.h>

/* The one of n words that `text` probably misspells, such as cahce or Cache_MB; NULL: none. */
const char *near_word(const char *text, const char *const words[], size_t n);

#endif
