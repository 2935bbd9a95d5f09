/*
 * Have all processes of the tree their copies again?  Each says so of the slots that it holds
 * (repair.c); one may be stopped, or may not have noticed yet that a node is back.  Only when no
 * process wants a copy can one more node be lost without harm.  The copies' bits are in the tree's
 * memory, so any process can tell: after pages were copied each looks twice a second, and the first
 * one that finds nothing wanting says so.
 *
 * By the I/O side.
 */
#ifndef VMRUN_FAR_WHOLE_H
#define VMRUN_FAR_WHOLE_H

#include <stdbool.h>
#include <stdint.h>

/* A page was copied. */
void whole_copied(void);
/* A step, if it is time for one. */
void whole_look(int64_t now_ms);
/* The next one is to come soon. */
bool whole_goes_on(void);
/* The next step begins a look anew, at once. */
void whole_anew(void);

#endif
