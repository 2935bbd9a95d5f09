/*
 * The exit status of vmrun's own failures, and messages said only once.  The rest is in
 * common/message.h.
 */
#ifndef VMRUN_MESSAGE_H
#define VMRUN_MESSAGE_H

#include "common/message.h"

#define EXIT_VMRUN_FAILED   125         /* vmrun itself failed */
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND      127

/* info_() once for each key. */
void info_once(unsigned long key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
