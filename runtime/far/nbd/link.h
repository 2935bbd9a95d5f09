/*
 * One connection, from the socket to the first transfer, as a state machine that never waits.
 */
#ifndef VMRUN_FAR_NBD_LINK_H
#define VMRUN_FAR_NBD_LINK_H

#include "far/nbd/nbd.h"

struct pollfd;

/* Milliseconds in which vmrun ran: at most NBD_GAP_MS pass between two calls, or NBD_STEP_MS if the
 * node hands back.  So a server is not blamed for silence while vmrun was stopped (Ctrl-Z, a
 * suspended machine), and afterwards the answers that wait in the sockets are read before time-outs
 * are checked. */
uint64_t nbd_clock(struct nbd_node *d);
/* -ENOLINK, with why. */
int nbd_say_down(char why[FAR_WHY]);

/* Moves a link towards LINK_UP as far as possible without waiting.  If that fails, it is LINK_DOWN
 * with err and why; err == -ESTALE: the server answers, but the data it held is gone. */
void nbd_link_step(struct nbd_link *l);
void nbd_link_fail(struct nbd_link *l, int err, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/* The event for which a link waits that is not up.  True: fills in p.  False: the link only waits
 * for l->until. */
bool nbd_link_waits(const struct nbd_link *l, struct pollfd *p);
/* Is the connection gone?  Then the link is down. */
bool nbd_link_broken(struct nbd_link *l);
void nbd_link_close(struct nbd_link *l);

#endif
