/*
 * Leaving a node that asks for it, as memnode does before it ends.
 *
 *   far_asked()    the node's driver has heard it from the node itself: far_node.asked
 *   moves.c        by a thread: notes the node in tree_common.leaving, from when on its slabs have
 *                  bits, and gives them places on other nodes; looks who else needs the node
 *   repair.c       copies the pages there, and looks whether a page is left that only such a node
 *                  has
 *   leave_step()   then asks nothing more of the node (far_node.is_left), waits for what is under
 *                  way there and for the rest of the tree, and has the driver answer.  The node is
 *                  lost from then on, with no page.
 *
 * [L] A slab that is listed in the tree with a place on a node in `leaving` has bits
 *     (slab_map.places).  So who is dead may be buried without that node's answer (cut.c), as if it
 *     were silent and had copies elsewhere.
 *
 * Each process leaves for itself, and for good: no slot comes to it later that only that node has,
 * as slots come from the parent at fork, and new places are on other nodes.  A child that the node
 * does not know yet cannot answer it.  So a process does not answer before every other one of the
 * tree that holds slots has been asked by the node itself, or has left it: tree_process.asked,
 * left.  It leaves before that, so that its children are born without the node: else a tree whose
 * processes come and go would always have one that was not asked yet.
 */
#ifndef VMRUN_FAR_LEAVE_H
#define VMRUN_FAR_LEAVE_H

#include "far/node.h"

/* By the I/O side, at each of its turns.  Returns how much there was to do. */
unsigned leave_step(void);
/* When leave_step() should be called again, in ms; -1: when something else happens. */
int leave_patience(void);
/* A node has asked; for threads other than the I/O side a hint. */
bool leave_is_asked(void);
/* For people: "leaving", "cannot be left" or "left"; NULL: none of these.  Any thread. */
const char *leave_state(const struct far_node *n);
/* This process, or the program before it, has left the node: it is not connected. */
void leave_is_over(struct far_node *n);
/* Before fork, while moves.c does not look: no node that is not left yet is answered from the next
 * io_hold() on before moves.c has looked again, and seen the child.  Else the parent could let go
 * of a slot that only the child has then, answer, and memnode would end without having known the
 * child. */
void leave_put_off(void);
/* In a forked child. */
void leave_forked(void);

#endif
