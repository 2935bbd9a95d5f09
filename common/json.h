/*
 * JSON (RFC 8259), as far as programs here write it.
 */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include <stdio.h>

/* A string with its quotes.  s: UTF-8 (line_clean() makes it so). */
void json_string(FILE *f, const char *s);

#endif
