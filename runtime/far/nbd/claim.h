/*
 * How an export that is no lease of memnode becomes this vmrun's alone.
 */
#ifndef VMRUN_FAR_NBD_CLAIM_H
#define VMRUN_FAR_NBD_CLAIM_H

#include "far/nbd/nbd.h"

/* Claims the export at address i of t for this process; *fd is to be held, and closed by
 * privfd_close(). */
int nbd_claim(const struct nbd_target *t, unsigned i, int *fd, char why[FAR_WHY]);

#endif
