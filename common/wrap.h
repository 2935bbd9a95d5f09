/*
 * Text for a screen, in lines that fit it.
 */
#ifndef COMMON_WRAP_H
#define COMMON_WRAP_H

#include <stdio.h>

/* Prints text in lines of at most `columns` bytes, which end at blanks; what follows the first line
 * is indented by four.  A newline in the text begins a new first line.  Of a word that is longer
 * than a line, such as a path, the end is shown. */
void wrap_print(FILE *f, const char *text, unsigned columns);

#endif
