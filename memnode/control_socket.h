/*
 * The control socket: a client that connects gets the statistics as text, and the connection ends.
 * If the client says CONTROL_DRAIN at once, memnode drains itself, and tells the client how that
 * goes until memnode ends, which ends the connection.
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
/* Sends a line to each client that waits for the end. */
void control_tell(const char *line);

#endif
