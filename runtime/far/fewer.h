/*
 * Pages with fewer copies than --replicas: how many there are, and messages when some have come to
 * be, and when there are none any more.  One process says so for the whole tree.
 */
#ifndef VMRUN_FAR_FEWER_H
#define VMRUN_FAR_FEWER_H

#include <stdint.h>

/* Of all processes of the tree, in the slabs that this process uses.  Takes some 100 us for each
 * GiB of far memory.  Any thread. */
uint64_t fewer_pages(void);
/* A step of the search.  By the thread of rebuild.c, once this process uses a slab. */
void fewer_look(void);

#endif
