/*
 * What vmrun says, and how it ends by itself.
 */
#ifndef VMRUN_MESSAGE_H
#define VMRUN_MESSAGE_H

#include <stdbool.h>

#define EXIT_VMRUN_FAILED   125         /* vmrun itself failed */
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND      127

/* vmrun's own words go to a private copy of stderr, one line each, with the prefix "vmrun: ".
 * (message.c) */
void message_use(int fd);               /* the copy; -1: there is none */
extern bool message_verbose;            /* info_() says something */
void warnx_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void info_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));        /* only with -v */
_Noreturn void die_(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* info_() once for each key. */
void info_once(unsigned long key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int message_fd(void);

#endif
