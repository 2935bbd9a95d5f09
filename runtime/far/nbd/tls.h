/*
 * The start of TLS on a connection, from the greeting to the choice of an export, by a thread of
 * its own: libnbd waits for the server within gnutls_handshake(), for up to 40 s, and opens the
 * file of the key meanwhile.
 */
#ifndef VMRUN_FAR_NBD_TLS_H
#define VMRUN_FAR_NBD_TLS_H

#include "far/nbd/nbd.h"

/* The link has a handle and a connected socket.  0: its handle is the thread's until
 * nbd_tls_is_over(); -errno: there is no thread. */
int nbd_tls_begin(struct nbd_link *l);
/* The thread has ended, with TLS or without, or there was none: the handle is the caller's. */
bool nbd_tls_is_over(struct nbd_link *l);
/* Breaks the connection, if the thread is still at work, and waits for its end. */
void nbd_tls_stop(struct nbd_link *l);

#endif
