/*
 * Draining a node: it asks for that, as memnode does before it ends, and the pages move to other
 * nodes.
 *
 *   far_asked()    the node's driver has heard it from the node itself: far_node.asked
 *   moves.c        by a thread: notes the node in tree_common.draining, so its slabs have bits from
 *                  then on, and gives them places on other nodes; buries the dead, since pages in
 *                  their slots count as needed
 *   repair.c       copies the pages there, and looks whether only draining nodes have some page
 *   drain_step()   then asks nothing more of the node (far_node.is_drained), waits for transfers
 *                  that are under way there and for the rest of the tree, and has the driver
 *                  answer.  From then on the node is lost, with no page.
 *
 * [L] A slab that is listed in the tree with a place on a node in `draining` has bits
 *     (slab_map.places).  So a dead process may be buried without that node's answer (cut.c), as if
 *     the node were silent and had copies elsewhere.
 *
 * A node is drained for each process by itself, and for good: the process never gets a slot later
 * that only that node has, as slots come from the parent at fork, and new places are on other
 * nodes.
 * A child that the node does not know yet cannot answer the node.  So a process does not answer
 * before the node has asked every other process of the tree that holds slots, or is drained for it:
 * tree_process.asked, drained.  The node is drained for a process before that process answers, so
 * its children are born without the node.  Else, in a tree whose processes come and go, there would
 * always be one that was not asked yet.
 */
#ifndef VMRUN_FAR_DRAIN_H
#define VMRUN_FAR_DRAIN_H

#include "far/node.h"

/* By the I/O side, at each of its turns.  Returns how much there was to do. */
unsigned drain_step(void);
/* When drain_step() should be called again, in ms; -1: when something else happens. */
int drain_patience(void);
/* Has a node asked?  For threads other than the I/O side a hint. */
bool drain_is_asked(void);
/* For people: "draining", "cannot be drained" or "drained"; NULL: none of these.  Any thread. */
const char *drain_state(const struct far_node *n);
/* The node is drained for this process, or was for the program before it: it is not connected. */
void drain_is_over(struct far_node *n);
/* In a forked child. */
void drain_forked(void);

#endif
