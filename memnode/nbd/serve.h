/*
 * Connections: a thread for each.
 */
#ifndef MEMNODE_NBD_SERVE_H
#define MEMNODE_NBD_SERVE_H

#include <stdbool.h>

struct sockaddr_storage;
/* Takes over a new connection.  Any thread. */
void nbd_welcome(int fd, const struct sockaddr_storage *from, unsigned len);
/* New connections are refused from here on, and requests answered with NBD_ESHUTDOWN. */
void nbd_refuse(void);
/* Then: ends all connections.  False: threads are still at work some seconds after timeout_ms. */
bool nbd_end_connections(unsigned timeout_ms);

/* server.drain and server.waits (memnode/server.h). */
void nbd_drain(void);
unsigned nbd_waits(bool say);

#endif
