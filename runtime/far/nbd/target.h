/*
 * The URL: host and its addresses, port, socket, export.
 */
#ifndef VMRUN_FAR_NBD_TARGET_H
#define VMRUN_FAR_NBD_TARGET_H

#include "far/nbd/nbd.h"

/* All of these: 0, or -errno with one sentence in why. */
int nbd_target_parse(struct nbd_target *t, const char *rest, bool is_unix, char why[FAR_WHY]);
int nbd_target_resolve(struct nbd_target *t, unsigned timeout_ms, char why[FAR_WHY]);
void nbd_target_free(struct nbd_target *t);

#endif
