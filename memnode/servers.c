/*
 * The servers, in the order in which they are begun, drained and stopped.
 */
#include "server.h"

const struct server *const servers[SERVERS] = { &rdma_server, &nbd_server };
