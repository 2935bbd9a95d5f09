/*
 * The links of a node together: made, brought up, freed.
 */
#ifndef VMRUN_FAR_NBD_NODE_H
#define VMRUN_FAR_NBD_NODE_H

#include "far/nbd/nbd.h"

/* Without connections; NULL: no memory. */
struct nbd_node *nbd_node_new(struct far_node *n);
/* Says goodbye on links that are up. */
void nbd_node_free(struct nbd_node *d);
/* Waits until the link is up.  0, or -errno with why. */
int nbd_bring_up(struct nbd_link *l, char why[FAR_WHY]);
/* Sets why for a link that has not come further for ms. */
void nbd_explain_silence(const struct nbd_link *l, uint64_t ms, char why[FAR_WHY]);

#endif
