/*
 * Unix sockets that servers leave behind when they are killed.
 */
#ifndef COMMON_STALE_H
#define COMMON_STALE_H

#include <stdbool.h>
#include <sys/un.h>

/* Removes the unix socket at that path if no process listens on it.  Never removes the socket of a
 * running server, nor anything but a socket.  True: it is gone. */
bool stale_socket_remove(const struct sockaddr_un *a);

#endif
