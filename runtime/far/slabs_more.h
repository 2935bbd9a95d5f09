/*
 * Slabs on nodes that are added: slabs_more.c.
 */
#ifndef VMRUN_FAR_SLABS_MORE_H
#define VMRUN_FAR_SLABS_MORE_H

#include "far/node.h"

/* With the locks held (slabs.h): takes over nodes that other processes found to be served again. */
void slabs_learn(void);
/* For far_add().  slabs_may_add(): -EBUSY with why if other processes belong to the tree, or to
 * have ended without being buried yet; else 0, and *member is what the node must be opened with.
 * slabs_add(): cuts the node to what can be used of it, adds it to the table, and to the tree if
 * there is one; -EBUSY as before, -ESTALE: *member is no longer right. */
int slabs_may_add(struct vm *vm, uint64_t *member, char why[FAR_WHY]);
int slabs_add(struct vm *vm, struct far_node *n, char why[FAR_WHY]);
/* For far_return(): adds n, which node number `was` has become, for all processes of the tree.
 * -EEXIST: another process was faster.  slabs_member(): what n must be opened with; 0: there is no
 * tree. */
uint64_t slabs_member(void);
int slabs_return(struct vm *vm, struct far_node *n, unsigned was, char why[FAR_WHY]);

#endif
