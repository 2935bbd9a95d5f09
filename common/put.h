/*
 * Words for people, on a descriptor that may be anything.
 */
#ifndef COMMON_PUT_H
#define COMMON_PUT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes all of it: true, or false with errno; ETIMEDOUT: the reader has taken nothing for wait_ms.
 * Raises SIGPIPE unless the caller sees to that.  The descriptor may be a blocking one, for it is
 * not ours alone to change: a write is for no more than a pipe that is ready takes.
 */
bool put_all(int fd, const char *s, size_t n, int wait_ms);

#endif
