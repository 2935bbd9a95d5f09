/*
 * Where a connection comes from, as far as it counts: an IPv4 address; of IPv6 the network of 64
 * bits, since a host has all addresses of one; of a unix socket the user.
 */
#ifndef MEMNODE_ORIGIN_H
#define MEMNODE_ORIGIN_H

#include <sys/socket.h>

#define ORIGIN_TEXT 64
/* Says it in words, which are equal for equal origins.  fd: of a unix socket, else not used. */
void origin_text(char text[ORIGIN_TEXT], const struct sockaddr *a, int fd);

#endif
