/*
 * Connections that may use exports: a thread for each.
 */
#ifndef MEMNODE_NBD_SERVE_H
#define MEMNODE_NBD_SERVE_H

#include <stdbool.h>

struct nbd_connection;
/* Takes over a connection whose client may come in, and gives it a thread; or refuses it.  Its
 * handshake has ended with NBD_HS_OPTION, or TLS has just begun.  party: NULL, no memory was left
 * for it. */
void nbd_serve(struct nbd_connection *c);
/* New connections are refused from here on, and requests answered with NBD_ESHUTDOWN. */
void nbd_refuse(void);
/* Then: ends all connections.  False: threads are still at work some seconds after timeout_ms. */
bool nbd_end_connections(unsigned timeout_ms);

/* server.drain and server.waits (memnode/server.h). */
void nbd_drain(void);
unsigned nbd_waits(bool say);

#endif
