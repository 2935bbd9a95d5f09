/*
 * Places on other nodes, for slabs whose nodes are lost or to be left: moves.c.
 */
#ifndef VMRUN_FAR_MOVES_H
#define VMRUN_FAR_MOVES_H

struct vm;

/* Finds other nodes for slabs whose copies have become too few, and places that other processes
 * found.  May wait for nodes. */
void moves_look(struct vm *vm);
/* Sets the function that moves_look() calls at its end, if nodes were left.  By far_init(). */
void moves_then(void (*look)(struct vm *vm));

#endif
