/*
 * A program's messages: one message, one line, one write, on a descriptor whose reader may have
 * stopped reading.
 */
#ifndef COMMON_LINE_H
#define COMMON_LINE_H

#include <stdarg.h>
#include <stddef.h>

/*
 * What messages for fd's file are best written to: a descriptor that never blocks, on a file
 * description of our own, for that of fd belongs to others too.  Pipes and terminals only; -1 for
 * all else, and where it cannot be opened: fd itself does, then.
 */
int line_open(int fd);

/*
 * Writes prefix, text and a newline.  A reader that takes nothing delays the first line by a
 * moment; further ones are dropped at once, and counted: the next that can be written says before
 * it how many. Any thread; takes no lock.
 */
void line_say(int fd, const char *prefix, const char *fmt, va_list ap)
        __attribute__((format(printf, 3, 0)));
/* Says how many were dropped last, if any were. */
void line_end(int fd, const char *prefix);

/* Replaces what must not reach a terminal by '?': control characters, C1 ones too, and what is no
 * UTF-8.  Other UTF-8 stays. */
void line_clean(char *s, size_t n);

#endif
