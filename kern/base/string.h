/*
 * The functions of libc that compilers may call, and copies of pages.
 */
#ifndef VMRUN_STRING_H
#define VMRUN_STRING_H

#include <stddef.h>

void *memcpy(void *restrict d, const void *restrict s, size_t n);
void *memmove(void *d, const void *s, size_t n);
void *memset(void *d, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);
void copy_page(void *restrict d, const void *restrict s);
void zero_page(void *d);

#endif
