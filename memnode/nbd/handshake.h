/*
 * The handshake, before the first command: a state machine on bytes, without sockets.  One thread
 * at a time.
 */
#ifndef MEMNODE_NBD_HANDSHAKE_H
#define MEMNODE_NBD_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nbd_handshake_ops {
        /* Called with a name as the client sent it (no NUL at its end).  0, with a description of
         * the export or "", or NBD_REP_ERR_... with a sentence. */
        uint32_t (*attach)(void *ctx, const char *name, size_t len, uint64_t *size,
                           const char **text);
        uint32_t (*look)(void *ctx, const char *name, size_t len, uint64_t *size,
                         const char **text);
        /* the client could not be told that it is attached */
        void (*detach)(void *ctx);
        const char *(*listed)(void *ctx, unsigned i);
        /* 0 or -errno; the handshake ends if it fails */
        int (*send)(void *ctx, const void *data, size_t len);
};
/* What a client that has not proved itself may do. */
enum nbd_door {
        NBD_DOOR_OPEN,                          /* options are served */
        /* the first option that takes more than a word waits for nbd_handshake_go_on() */
        NBD_DOOR_STOP,
        NBD_DOOR_TLS,                           /* options are refused before TLS */
};
enum nbd_handshake_end {
        NBD_HS_GOING,                           /* more bytes, please */
        NBD_HS_OPTION,                          /* an option waits (NBD_DOOR_STOP) */
        NBD_HS_TLS,                             /* the client begins TLS with its next byte */
        NBD_HS_ATTACHED,                        /* commands follow */
        NBD_HS_GOODBYE,                         /* the client has ended the handshake */
        NBD_HS_BROKEN,                          /* not the protocol, or send failed */
};

/* of an option's data: a name and a list of information requests; more is skipped and refused */
#define NBD_OPTION_MAX  8192
struct nbd_handshake {
        const struct nbd_handshake_ops *ops;
        void *ctx;
        enum nbd_handshake_end end;
        const char *broken;                     /* why, with NBD_HS_BROKEN */
        enum nbd_door door;
        bool offers_tls, secured;               /* secured: TLS has begun */
        bool structured;                        /* agreed on */
        bool sent_away;                         /* an option was refused for want of TLS */
        /* its own */
        enum { NBD_HS_FLAGS, NBD_HS_HEADER, NBD_HS_DATA, NBD_HS_SKIP } state;
        /* the option under way, and how many of its bytes are still to be skipped */
        uint32_t client_flags, option, length;
        /* bytes in buf, and how many the state wants there */
        size_t have, need;
        unsigned options;                       /* so far */
        uint8_t buf[NBD_OPTION_MAX];
};
/* Sends the greeting. */
void nbd_handshake_start(struct nbd_handshake *h, const struct nbd_handshake_ops *ops, void *ctx,
                         enum nbd_door door, bool offers_tls);
/* After NBD_HS_OPTION: opens the door, and serves the option that waits. */
void nbd_handshake_go_on(struct nbd_handshake *h);
/* After NBD_HS_TLS, once TLS is up: opens the door, and forgets what was agreed on before. */
void nbd_handshake_secured(struct nbd_handshake *h);
/* Takes bytes of the client until they or the handshake end; returns how many it took. */
size_t nbd_handshake_input(struct nbd_handshake *h, const uint8_t *in, size_t len);

#endif
