/*
 * Name service with a time limit.
 */
#ifndef COMMON_LOOKUP_H
#define COMMON_LOOKUP_H

#include <netdb.h>

#define LOOKUP_LATE (-1000)             /* no answer within the limit; no EAI_ number */
#define LOOKUP_NO_THREAD (-1001)        /* errno tells why */

/* getaddrinfo() for stream sockets, within timeout_ms; a numeric host is answered at once.
 * service: NULL: none, the ports of the addresses are 0.  flags: AI_ADDRCONFIG or 0.  Returns 0,
 * EAI_..., LOOKUP_LATE or LOOKUP_NO_THREAD. */
int lookup(const char *host, const char *service, int flags, unsigned timeout_ms,
           struct addrinfo **list);

#endif
