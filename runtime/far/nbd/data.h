/*
 * Transfers.
 */
#ifndef VMRUN_FAR_NBD_DATA_H
#define VMRUN_FAR_NBD_DATA_H

#include "far/nbd/nbd.h"

/* Nothing is under way on the link, all slots are free. */
void nbd_slots_reset(struct nbd_link *l);
/* Gives back requests that are over by far_done(); returns how many. */
unsigned nbd_give_back(struct nbd_link *l);
/* The link is closed, and the node is lost or hands back: gives back all requests under way by
 * far_failed(). */
void nbd_slots_fail(struct nbd_link *l);
/* far_driver.post. */
unsigned nbd_post(struct far_node *n, struct far_request **r, unsigned count);
/* Sends the command of a slot, again if need be.  The link is up. */
void nbd_transfer(struct nbd_slot *s);
/* Reads the answers that are there; how many requests are over. */
unsigned nbd_take_answers(struct nbd_link *l);
/* The link is up again: sends all commands that were under way. */
void nbd_resume(struct nbd_link *l);

#endif
