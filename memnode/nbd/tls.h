/*
 * TLS 1.3 with the keys of --keys: both sides prove that they know the key, and no certificate is
 * needed (RFC 8446, pre-shared keys with Diffie-Hellman).
 */
#ifndef MEMNODE_NBD_TLS_H
#define MEMNODE_NBD_TLS_H

#include "common/keys.h"
#include "memnode/nbd/wire.h"

/* Before the first connection, if there are keys.  0, or -errno with a sentence. */
int nbd_tls_open(char *why, size_t n);
/* The server's side of TLS on this wire.  0 or -ENOMEM. */
int nbd_tls_begin(struct nbd_wire *w);
/* Goes on with the handshake, without waiting.  0: done; -EAGAIN: for the poll() events in *events;
 * -EACCES: the client has no valid key; else -errno, with a sentence in *why. */
int nbd_tls_step(struct nbd_wire *w, short *events, const char **why);
/* Once it is done: the name of the client's key. */
void nbd_tls_name(const struct nbd_wire *w, char name[KEY_NAME_MAX + 1]);
/* After -EACCES: tells the client so, and frees it. */
void nbd_tls_refuse(struct nbd_wire *w);
/* Says goodbye, where that takes no waiting, and frees it; nothing, if the wire has no TLS.  The
 * socket stays open. */
void nbd_tls_end(struct nbd_wire *w);

#endif
