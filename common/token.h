/*
 * The token that a memnode's clients must know: the first line of a file.
 */
#ifndef COMMON_TOKEN_H
#define COMMON_TOKEN_H

#include <stddef.h>
#include "nodeproto.h"

/* Reads the token; the bytes of token[] behind it are zero.  The token may become part of an NBD
 * export's name, so it has only printable characters and no spaces.  0, or -errno with one sentence
 * in why[size] that does not name the file. */
int token_read(const char *path, char token[NODE_TOKEN_MAX + 1], char *why, size_t size);

#endif
