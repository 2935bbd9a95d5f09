/*
 * The control socket: a client that connects gets the statistics as text, and the connection ends.
 * One that says CONTROL_DRAIN at once has memnode drain itself, and is told how that goes until
 * memnode has ended, which ends the connection.
 */
#ifndef MEMNODE_CONTROL_SOCKET_H
#define MEMNODE_CONTROL_SOCKET_H

#include <stddef.h>
#include <stdio.h>

/* A unix socket for this user only: its descriptor, or -errno with a sentence in why.  The caller
 * removes the path at the end. */
int control_open(const char *path, char *why, size_t n);
#define CONTROL_DRAIN "drain\n"

/* Accepts one connection and sends it what print() writes, or calls drain(); a client that does not
 * read is dropped after a second.  0, or -errno if none could be accepted: the client still
 * waits. */
int control_answer(int fd, void (*print)(FILE *to), void (*drain)(void));
/* One line to all who wait for the end. */
void control_tell(const char *line);

#endif
