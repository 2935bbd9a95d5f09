/*
 * vmctl: its commands that are more than a request.  They return the exit status.
 */
#ifndef VMRUN_CONTROL_CLIENT_H
#define VMRUN_CONTROL_CLIENT_H

#include <stdbool.h>
#include <sys/types.h>

int list_print(bool json);              /* list.c */
/* A line for each program, again and again; without a terminal once.  (top.c) */
int top(unsigned interval_ms);
/* Shows what happens each second, until the process ends or the user stops it.  (watch.c) */
int watch(pid_t pid, unsigned interval_ms, bool json);
/* Begins a scrub, and waits until it ends or the user stops waiting.  rate: as given, or NULL. 0,
 * and *status is the exit status; or -errno, if the process cannot be asked.  (scrub.c) */
int scrub(pid_t pid, const char *rate, bool json, int *status);

#endif
