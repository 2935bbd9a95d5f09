/*
 * Nodes that break, and requests that no node can carry out for now: outage.c.
 */
#ifndef VMRUN_FAR_OUTAGE_H
#define VMRUN_FAR_OUTAGE_H

#include <stdbool.h>

struct far_node;

/* --- by the I/O side, outside of all drivers --- */

/* After the drivers were polled: finds another node for each transfer that one has handed back, and
 * tries stranded requests again.  Returns how much there was to do. */
unsigned outage_step(void);
/* When outage_step() should be called again, in ms; -1: when something else happens. */
int outage_patience(void);
/* In a forked child: nodes that hand back are down. */
void outage_forked(void);
/* The node was attached: from now on it may take its time to come up. */
void outage_attached(struct far_node *n);

/* --- any thread --- */

/* No node can carry out some request, perhaps because a process has died whose writes may still
 * arrive.  A hint. */
bool outage_waits(void);
/* Sets the function that ends the program when a node is lost with pages that no other node has
 * (n->why).  The I/O side calls it; it does not return. */
void outage_on_loss(void (*owner)(const struct far_node *n));

#endif
