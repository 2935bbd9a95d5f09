/*
 * Whether an export can be used, and by how large commands.
 */
#ifndef VMRUN_FAR_NBD_EXPORT_H
#define VMRUN_FAR_NBD_EXPORT_H

#include "far/nbd/nbd.h"

/* Can the export of a link that is ready be used?  The first connection sets the node's size, and
 * how large a command may be; other connections are checked for both.  0, or -errno with why. */
int nbd_export_fits(struct nbd_link *l, char why[FAR_WHY]);

#endif
