/*
 * A program's messages to its user, on standard error or in its place: one message, one line.
 */
#ifndef COMMON_MESSAGE_H
#define COMMON_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

/* What a message is, as syslog numbers it. */
enum message_level { MESSAGE_ERROR = 3, MESSAGE_WARNING, MESSAGE_NOTICE, MESSAGE_INFO };

/* Sets the beginning of each line, as in "vmrun: ".  main() calls it first. */
void message_prefix(const char *text);
/* Sets a function that makes the beginning of each line in place of the prefix: n bytes with their
 * NUL, in `to`.  Any thread may call it at any time; it is set before the first one starts. */
void message_head(void (*fn)(enum message_level level, char *to, size_t n));
/* Sets where messages go from here on; called before the first thread starts.  -1: nowhere.  At
 * first: fd 2. */
void message_to(int fd);
int message_fd(void);
void message_verbose(bool yes);         /* whether info_() says anything; at first it does not */
/* Sets the function that end_() and die_() call before the process ends: any thread may call it at
 * any time. */
void message_at_end(void (*fn)(void));
/* Says how many messages were dropped unread, if the last ones were (line.h). */
void message_end(void);

void warnx_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What is as it should be. */
void notice_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void info_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* They end the process at once: other threads may be running, and nothing is flushed. */
_Noreturn void end_(int status);
_Noreturn void die_(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
