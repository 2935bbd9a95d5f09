/*
 * The list of connections, control and data, and how they end.
 */
#ifndef MEMNODE_RDMA_CONNECTION_H
#define MEMNODE_RDMA_CONNECTION_H

#include "memnode/rdma/rdma.h"

extern struct connection *connections;

/* From an accepted request on, it is in the list and counted. */
void connection_add(struct connection *c);
/* Frees what control_setup() and rdma_create_qp() made, and it counts for nobody any more; any part
 * may be missing. */
void connection_release(struct connection *c);
/* Nobody waits for its request any more. */
void connection_drop_job(struct connection *c);
/* Ends a connection, for good and at once; its client is not touched.  A function called from a
 * loop over the connections may end any connection: its memory stays and its `next` stays valid
 * until connections_reap(), which the thread calls where it holds no pointer to a connection. */
void connection_end(struct connection *c);
void connections_reap(void);
/* The connection broke: as connection_end(), and if it was the last control connection of its
 * client, the client is gone from now on. */
void connection_lost(struct connection *c, const char *why);
/* All data connections of a client, or of one member of it. */
void connection_end_data(const struct client *cl);
void connection_end_member(const struct client *cl, uint64_t member);
/* All connections of members that were cut, except `self`.  When it returns, no network card takes
 * anything more from them. */
void connection_end_cut(struct client *cl, const struct connection *self);
/* The client has ended: its control connections belong to no client, and end once all messages sent
 * have arrived. */
void connection_disown(const struct client *cl);

#endif
