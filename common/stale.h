/*
 * What a server that was killed leaves behind.
 */
#ifndef COMMON_STALE_H
#define COMMON_STALE_H

#include <stdbool.h>
#include <sys/un.h>

/* Removes the unix socket at that path if nobody listens there; never that of a server that runs,
 * nor anything that is no socket.  True: it is gone. */
bool stale_socket_remove(const struct sockaddr_un *a);

#endif
