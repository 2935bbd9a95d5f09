/*
 * A node more while the program runs: grow.c.
 */
#ifndef VMRUN_FAR_GROW_H
#define VMRUN_FAR_GROW_H

#include "far/node.h"

/* Adds a node while the program runs.  o is copied to opt, its texts are taken over.  0, or -errno
 * with why, and o is as before: -EBUSY: other processes share the far memory of this one, and would
 * not know the node.  Takes as long as the node takes to answer; fetches of pages wait while it is
 * attached.  Any thread, one at a time, and not during fork, execve or alone_begin(). */
int far_add(struct vm *vm, const struct node_option *o, char why[FAR_WHY]);

/* Nodes that were drained (drain.h), or lost with copies elsewhere, are used again once they are
 * served again, each under a number of its own.  By the thread of rebuild.h, now and then. */
void far_return(struct vm *vm);

#endif
