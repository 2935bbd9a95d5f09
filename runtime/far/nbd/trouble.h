/*
 * When links fail: time-outs, and the loss of the node.
 */
#ifndef VMRUN_FAR_NBD_TROUBLE_H
#define VMRUN_FAR_NBD_TROUBLE_H

#include "far/nbd/nbd.h"

/* From time to time: is the link, or the node, lost?  Sends again the transfers that the server
 * failed. */
void nbd_judge(struct nbd_link *l);
/* A node that hands back: is it down now, or up?  After each look at its links. */
void nbd_watch(struct nbd_node *d);

#endif
