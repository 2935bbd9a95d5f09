/*
 * Sockets at which systemd listens for memnode (sd_listen_fds(3)), for NBD.
 */
#ifndef MEMNODE_INHERITED_H
#define MEMNODE_INHERITED_H

#include "options.h"

/* Adds a URL for each to the addresses of o.  0, or -errno with a sentence. */
int inherited_add(struct memnode_options *o, char why[WHY_MAX]);
/* The socket of that URL, which the caller owns from here on; -1: there is none. */
int inherited_take(const char *url);

#endif
