/*
 * Rebuild: when a node is lost, is silent for --timeout, or drains, its slabs get places on other
 * nodes, and repair.c fills them.  A thread of vmrun's own looks for such nodes now and then, since
 * a lease waits for nodes.
 */
#ifndef VMRUN_FAR_REBUILD_H
#define VMRUN_FAR_REBUILD_H

struct vm;

/* Once the nodes are used: starts the thread, which calls look().  A process that can have no other
 * thread does without. */
void rebuild_start(struct vm *vm, void (*look)(struct vm *vm));
/* See struct ticker. */
void rebuild_rest(void);
void rebuild_go_on(void);
void rebuild_hold(void);
void rebuild_release(void);
void rebuild_forked(void);

#endif
