/*
 * How dead processes of the tree are cut off from a lease.
 */
#ifndef VMRUN_FAR_NBD_LEASE_CUT_H
#define VMRUN_FAR_NBD_LEASE_CUT_H

#include "far/nbd/nbd.h"

/* far_driver.cut. */
int nbd_lease_cut(struct far_node *n, const struct far_range *dead, unsigned count,
                  unsigned limit_ms, char why[FAR_WHY]);

#endif
