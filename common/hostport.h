/*
 * HOST:PORT as users write it.
 */
#ifndef COMMON_HOSTPORT_H
#define COMMON_HOSTPORT_H

#include <stdbool.h>
#include <stdint.h>

#define HOSTPORT_HOST 256

struct hostport {
        char host[HOSTPORT_HOST];       /* without brackets; may be empty */
        bool colon;                     /* a port follows, if only an empty one */
        char service[32];               /* the port as given; "": none */
        uint16_t port;                  /* the port's number; 0: none, or not from 1 to 65535 */
};

enum hostport_error {
        HOSTPORT_OK,
        HOSTPORT_BRACKET,               /* ] is missing, or something but :PORT follows it */
        /* several colons without brackets: an IPv6 address needs brackets */
        HOSTPORT_COLONS,
        HOSTPORT_LONG,                  /* host or port is too long */
        HOSTPORT_PATH,                  /* more than a slash follows */
};
/* Splits HOST, HOST:PORT, [HOST] or [HOST]:PORT, where a single slash may follow.  Which parts must
 * be there is up to the caller. */
enum hostport_error hostport_parse(const char *text, struct hostport *hp);

#endif
