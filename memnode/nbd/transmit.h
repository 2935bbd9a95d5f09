/*
 * The commands.  One thread a connection.
 */
#ifndef MEMNODE_NBD_TRANSMIT_H
#define MEMNODE_NBD_TRANSMIT_H

#include "memnode/nbd/export.h"
#include "memnode/nbd/wire.h"

struct nbd_link {
        struct nbd_wire *wire;
        struct nbd_export *e;
        bool structured;
        /* the lease outlives memnode: when that ends, the connection breaks without a word */
        bool kept;
        const _Atomic bool *stopping;           /* new requests are answered with NBD_ESHUTDOWN */
        /* no request is served any more, not even if it was received before */
        const _Atomic bool *cut;
        /* of an export with a status: clients are asked to move; this one has said that it
         * cannot */
        const _Atomic bool *draining;
        _Atomic bool *stays;
};
/* Serves until the client ends; `ahead`: bytes that came after the handshake.  0: it ended properly
 * (DISC); -errno; -EPROTO: not the protocol. */
int nbd_transmit(const struct nbd_link *l, const uint8_t *ahead, size_t len);
/* bytes a connection reads ahead at most, and so the most that ahead may be */
#define NBD_RECEIVE (64u << 10)

#endif
