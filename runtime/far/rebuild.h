/*
 * Rebuild: when a node is lost, or silent for --timeout, or asks to be left, its slabs get places
 * on other nodes, and repair.c fills them.  A thread looks now and then, since leasing waits for
 * nodes.
 */
#ifndef VMRUN_FAR_REBUILD_H
#define VMRUN_FAR_REBUILD_H

struct vm;

/* Once the nodes are used.  A process that can have no other thread
 * does without. */
void rebuild_start(struct vm *vm, void (*rebuild)(struct vm *vm));
/* See struct ticker. */
void rebuild_rest(void);
void rebuild_go_on(void);
void rebuild_hold(void);
void rebuild_release(void);
void rebuild_forked(void);

#endif
