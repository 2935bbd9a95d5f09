/*
 * Leases of memnode, by the names of docs/protocol.md.
 */
#ifndef VMRUN_FAR_NBD_LEASE_H
#define VMRUN_FAR_NBD_LEASE_H

#include "far/nbd/nbd.h"

/* Digits that cannot be guessed.  0 or -EIO. */
int nbd_lease_draw(char hex[33]);
/* The name by which link l asks for its export; each time another.  0 or -errno. */
int nbd_lease_ask(struct nbd_link *l, char name[NBD_NAME]);
/* Takes the incarnation from the answer to the first name.  0; -EPROTO: the answer has none. */
int nbd_lease_made(struct nbd_link *l);

#endif
