/*
 * Children of test programs, and how they end.
 */
#ifndef T_CHILD_H
#define T_CHILD_H

#include <signal.h>
#include <sys/types.h>
#include "t_memory.h"

/* fork(); nothing that stands in stdio's buffers is printed twice. */
static inline pid_t start_child(void)
{
        fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        return pid;
}

/* Waits for the child, whose wait status must be `expect`. */
#define reap(pid, expect) reap_as(__FILE__, __LINE__, pid, expect)
void reap_as(const char *file, int line, pid_t pid, int expect);

#endif
