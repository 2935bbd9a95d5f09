/*
 * What memnode says of itself, behind the last byte of a lease.
 */
#ifndef VMRUN_FAR_NBD_STATUS_H
#define VMRUN_FAR_NBD_STATUS_H

#include "far/nbd/nbd.h"

/* Asks for it now and then. */
void nbd_status_look(struct nbd_node *d);
/* Before the I/O thread sleeps: lowers the time-out to the next look. */
void nbd_status_arm(const struct nbd_node *d, int *timeout_ms);
/* far_driver.answer */
bool nbd_answer(struct far_node *n, bool moved);

#endif
