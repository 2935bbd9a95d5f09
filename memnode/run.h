/*
 * --run: a command beside which memnode serves, and with which it ends.
 */
#ifndef MEMNODE_RUN_H
#define MEMNODE_RUN_H

#include <stdbool.h>
#include "options.h"

/* Without any address, memnode listens at a socket in a new folder, for the command alone.  0, or
 * -errno with a sentence. */
int run_place(struct memnode_options *o, char why[WHY_MAX]);
/* Puts uri, and unixsocket or port, of the first address into the environment, before the first
 * thread starts: others read it.  keys: over TCP clients need TLS. */
void run_prepare(const char *url, bool keys);
/* Starts it.  0, or -errno with a sentence. */
int run_start(const char *command, char *why, size_t n);
/* Passes a signal on. */
void run_signal(int signal);
/* Whether it has ended.  run_status(): as a shell has it; one that has not ended is told to. */
bool run_ended(void);
int run_status(void);
void run_unplace(void);                 /* at the end: removes the folder */

#endif
