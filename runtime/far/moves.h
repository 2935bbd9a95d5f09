/*
 * Places on other nodes, for slabs whose nodes are lost, silent or draining: moves.c.
 */
#ifndef VMRUN_FAR_MOVES_H
#define VMRUN_FAR_MOVES_H

struct vm;

/* Finds other nodes for slabs whose copies have become too few, and places that other processes
 * found.  May wait for nodes. */
void moves_look(struct vm *vm);
/* Sets the function that moves_look() calls at its end, if there was work.  By
 * far_init(). */
void moves_then(void (*look)(struct vm *vm));

#endif
