/*
 * Newcomers: connections that have not said yet what they want, or not proved who they are.  One
 * thread for all of them, so that they cost little whoever they are.
 */
#ifndef MEMNODE_NBD_GREET_H
#define MEMNODE_NBD_GREET_H

#include <stddef.h>

#define NBD_NEWCOMERS   64              /* at one time; then one of the busiest origin goes */
#define NBD_SOCKETS     32
#define NBD_NEWCOMER_MS 3000            /* each has so long */

/* Makes the thread, once.  0 or -errno. */
int nbd_greet_open(void);
/* Accepts on these sockets from here on, NBD_SOCKETS at most, which do not block and stay the
 * caller's. */
void nbd_greet_begin(const int *sockets, unsigned n);
/* Accepts nothing more, and closes the newcomers.  Returns when nbd_serve() is called no more. */
void nbd_greet_end(void);

#endif
