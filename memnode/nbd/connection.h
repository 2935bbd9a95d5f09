/*
 * A connection, from accept() to its end.  It belongs to one thread at a time: to the thread of
 * greet.c, until the client may use an export; then to a thread of its own (serve.c).
 */
#ifndef MEMNODE_NBD_CONNECTION_H
#define MEMNODE_NBD_CONNECTION_H

#include "memnode/admission/origin.h"
#include "memnode/nbd/fence.h"
#include "memnode/nbd/handshake.h"
#include "memnode/nbd/wire.h"

struct party;
struct nbd_connection {
        struct nbd_fenced at;                   /* first; in the list once it has a thread */
        struct nbd_wire wire;
        char origin[ORIGIN_TEXT];
        char peer[160];                         /* for the log */
        bool local;                             /* over a unix socket: no key is needed */
        struct party *party;                    /* for whom it counts; NULL: not allowed yet */
        int64_t until;                          /* ms: when the handshake must be over */
        struct nbd_handshake *h;                /* until the export is chosen */
        char description[NBD_DESCRIPTION];
        /* Received behind what the handshake took.  greet.c receives no more than this at once. */
        uint8_t ahead[1024];
        size_t nahead;
};
/* The connection was refused, or has broken the protocol: counts, and tells the log. */
#define nbd_refused(c, cause, ...) refused(cause, (c)->origin, (c)->peer, __VA_ARGS__)

#endif
