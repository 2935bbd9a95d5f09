/*
 * Have all processes of the tree their copies again?  Each process says so of the slots that it
 * holds (repair.c); but a process may be stopped, or may not have noticed yet that a node is back.
 * Only when no process lacks a copy can one more node be lost without harm.  The copies' bits are
 * in the tree's memory, so any process can tell.  After pages were copied each process scans these
 * bits twice a second, and the first process that finds no copy lacking says so.
 *
 * By the I/O side.
 */
#ifndef VMRUN_FAR_WHOLE_H
#define VMRUN_FAR_WHOLE_H

#include <stdbool.h>
#include <stdint.h>

/* A page was copied. */
void whole_copied(void);
/* A step of the scan, if it is time for one. */
void whole_look(int64_t now_ms);
/* A scan is under way, so the next step is to come soon. */
bool whole_goes_on(void);
/* Restarts the scan at the next step. */
void whole_restart(void);

#endif
