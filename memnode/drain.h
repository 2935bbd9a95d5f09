/*
 * The end that programs do not notice: clients are asked to move their pages to other nodes, and
 * memnode ends when all have answered, or --drain-timeout is over.
 */
#ifndef MEMNODE_DRAIN_H
#define MEMNODE_DRAIN_H

#include <stdbool.h>

/* Main thread only, like all of this, except drain_began(). */
void drain_begin(void);
bool drain_began(void);
/* True: memnode waits for no client any more.  To be asked every DRAIN_LOOK_MS. */
bool drain_over(void);
#define DRAIN_LOOK_MS 50

/* Tells memnode --drain that no client loses a page: what was not moved is kept (--resume). */
void drain_kept(void);

/* memnode --drain: has the memnode of that control socket drain itself, and waits until it has
 * ended.  Returns the exit status: 0 if no client was left there. */
int drain_other(const char *control);

#endif
