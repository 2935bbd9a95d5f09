/*
 * Words for people, on a descriptor that may be anything.
 */
#ifndef COMMON_PUT_H
#define COMMON_PUT_H

#include <stddef.h>

/* Writes all of it, as far as that can be done: gives up on a reader that is gone, or that takes nothing for a second.  Raises SIGPIPE
 * unless the caller sees to that. */
void put_all(int fd, const char *s, size_t n);

#endif
