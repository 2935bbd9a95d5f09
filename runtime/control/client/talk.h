/*
 * Connections to vmruns, and requests.
 */
#ifndef VMRUN_CONTROL_TALK_H
#define VMRUN_CONTROL_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Connects to the vmrun that runs that process: a descriptor, or -ESRCH, -EACCES,
 * -ETIMEDOUT. */
int talk_open(pid_t pid);
/* talk_open() by the name of a socket in the working directory, within limit_ms.  *pid: the
 * process that listens. */
int talk_connect(const char *name, int limit_ms, pid_t *pid);

/* text: malloc'ed, with a NUL behind it. */
struct answer { bool ok; char *text; size_t size; };
#define TALK_MS 5000                    /* for what vmrun answers at once */
/* Sends a request, without its newline, and waits for the answer at most limit_ms (-1: no limit).
 * 0; -ETIMEDOUT; -ECONNRESET: the process ended, or executes another program; -EPROTO: what came is
 * no answer. */
int talk(int fd, const char *request, int limit_ms, struct answer *a);

#endif
