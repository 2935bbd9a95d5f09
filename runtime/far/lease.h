/*
 * Leasing slabs, and this process's hold on them over fork: lease.c.
 */
#ifndef VMRUN_FAR_LEASE_H
#define VMRUN_FAR_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct exit_req;
struct thread;
struct tree_child;
struct vm;

/* kern uses `have` slabs: puts the next one into CONTROL->slabs.  0, or an error as for EXIT_LEASE
 * (abi_exits.h). */
int far_lease(struct vm *vm, uint32_t have);

/* EXIT_LEASE, EXIT_NO_MEMORY, EXIT_SLOTS_RELEASE */
int64_t far_exit_lease(struct thread *t, struct exit_req *rq);
int64_t far_exit_no_memory(void);
int64_t far_exit_release(struct thread *t, struct exit_req *rq);

/* Before fork: has nodes told of processes that ended, if there are many and this process uses
 * nodes anyway; full: there is no number left.  May wait for nodes. */
void slabs_cut(struct vm *vm, bool full);
/* The slabs' part of far_forked(). */
void slabs_forked(const struct tree_child *c);

#endif
