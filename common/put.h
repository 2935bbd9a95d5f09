/*
 * Words for people, on a descriptor that may be anything.
 */
#ifndef COMMON_PUT_H
#define COMMON_PUT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes all n bytes: true, or false with errno; ETIMEDOUT: the reader has taken nothing for
 * wait_ms.  Raises SIGPIPE unless the caller blocks or ignores it.  The descriptor may be blocking,
 * since it is shared and its flags are not ours to change.  So a write never has more bytes than a
 * ready pipe takes.
 */
bool put_all(int fd, const char *s, size_t n, int wait_ms);

#endif
