/*
 * A program's messages: one message, one line, one write, on a descriptor whose reader may have
 * stopped reading.
 */
#ifndef COMMON_LINE_H
#define COMMON_LINE_H

#include <stdarg.h>
#include <stddef.h>

/*
 * Opens fd's file again, as a descriptor for messages that never blocks.  It has a file description
 * of its own, since other processes share that of fd.  Pipes and terminals only.  -1 for all other
 * files, and if it cannot be opened: use fd itself then.
 */
int line_open(int fd);

/*
 * Writes prefix, text and a newline.  If the reader takes nothing, the first line waits for a
 * moment; further lines are dropped at once, and counted.  Their number is written before the next
 * line that can be written.  Any thread; takes no lock.
 */
void line_say(int fd, const char *prefix, const char *fmt, va_list ap)
        __attribute__((format(printf, 3, 0)));
/* Writes how many lines were dropped last, if any were. */
void line_end(int fd, const char *prefix);

/* Replaces by '?' control characters (C1 too) and bytes that are not UTF-8: they must not reach a
 * terminal. */
void line_clean(char *s, size_t n);

#endif
