/*
 * What a program says to its user, on standard error or in its place: one message, one line.
 */
#ifndef COMMON_MESSAGE_H
#define COMMON_MESSAGE_H

#include <stdbool.h>

/* What each line begins with, as in "vmrun: ": the first that main() does. */
void message_prefix(const char *text);
/* Where messages go from here on; before the first thread.  -1: nowhere.  At first: fd 2. */
void message_to(int fd);
int message_fd(void);
void message_verbose(bool yes);         /* whether info_() says anything; at first it does not */
/* Says how many messages nobody read, if the last ones were dropped (line.h). */
void message_end(void);

void warnx_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void info_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Ends the process at once: other threads may be running, and nothing is flushed. */
_Noreturn void die_(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
