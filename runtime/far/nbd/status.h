/*
 * memnode's status, behind the last byte of a lease, and vmrun's answer.
 */
#ifndef VMRUN_FAR_NBD_STATUS_H
#define VMRUN_FAR_NBD_STATUS_H

#include "far/nbd/nbd.h"

/* Reads the status, if it is time for that. */
void nbd_status_look(struct nbd_node *d);
/* Before the I/O thread sleeps: lowers the time-out to the next look. */
void nbd_status_arm(const struct nbd_node *d, int *timeout_ms);
/* far_driver.answer */
bool nbd_answer(struct far_node *n, bool moved);

#endif
