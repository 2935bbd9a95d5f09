/*
 * The front door of far memory: opening and closing, execve, fork, standing still.
 */
#ifndef VMRUN_FAR_H
#define VMRUN_FAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "far/node.h"
#include "include/allocator.h"

struct stats;

/* --- opening and closing --- */

/* Reads what opt says of its nodes, or of the default one, and their keys; ends vmrun with a
 * sentence if that names no node.  Opens none. */
void far_name(void);
/* Opens them, after far_name(); ends vmrun with a sentence if one cannot be opened.  room: bytes of
 * guest-physical space for nodes that are plain memory; they are cut to it with a notice.  Touches
 * no VM, so it may run before the VM exists. */
void far_init(uint64_t room);
/* vmrun --check: tries each node of opt, all open together as for a program; prints a line a node.
 * 0, or the last error. */
int far_check(FILE *f);
/* Is there a node whose pages only the I/O thread may move?  NULL: none. */
const struct far_node *far_needs_thread(void);
/* For stats_register(), after counters_stats(). */
void far_stats(struct stats *s);
/* The program ends, for whatever reason.  The last process of its tree releases the leases on
 * remote nodes, so that their memory is free at once and not after their grace time.  Any thread;
 * takes a second at most.  Other threads may continue, but no more pages arrive for them. */
void far_end(void);
/* Called before far_end(): no write of this process is under way, or will be, so other processes
 * may use its slots as soon as it is dead. */
void far_still(void);

/* --- execve (process/exec.c) --- */

/* The next program's inheritance. */
struct far_kept {
        int proc;                       /* for memfd_init() */
        /* private descriptor of the process tree, which the next program joins; -1: none */
        int tree;
        /* its number there, so that it counts as alive before it joins: else the last other process
         * would release the leases */
        struct tree_child next;
        struct far_kept_node node[NODES_MAX];
};
/* Called before a child that shares our address space is made, so that the parent and the child's
 * program do not both take a node for theirs alone.  Returns the program's number, negative: it
 * has none.  far_expect_end(): the child has ended, or executed its program. */
int far_expect_program(void);
void far_expect_end(int number);
/* execve: fills k with the descriptors and driver state that the next vmrun inherits.  expected: in
 * a vfork child, the number that far_expect_program() returned; else NULL.  Returns true if remote
 * leases cannot be inherited; the caller then calls far_end() just before execve. */
bool far_keep(struct far_kept *k, const int *expected);
/* Just before execve, with all other threads quiesced and no transfer under way: this program's
 * slots are free as soon as it is gone.  false: execve has failed. */
void far_leaves(bool leaves);
/* execve has failed: undoes far_keep(). */
void far_unkeep(const struct far_kept *k);
/* In the next program, before far_init(). */
void far_adopt(const struct far_kept *k);

/* --- fork (process/fork.c) --- */

/* Is there a node that a forked child could not use?  NULL: none. */
const struct far_node *far_cannot_fork(void);
/* Takes a number in the process tree for the child, *c, which tree_child_left() gives back.  0, or
 * -errno as of fork; -ENOSYS: there is no /proc. */
int far_expect_child(struct vm *vm, struct tree_child *c);
/* In a forked child: it becomes process c of the tree, with a VM that has no slab yet, and without
 * connections. */
void far_forked(const struct tree_child *c);

/* --- standing still --- */

/* For fork, in two steps, by the thread that forks; all other threads of the program are quiesced.
 * far_hold_background(): far memory begins nothing by itself any more: no copy, no place, no scrub.
 * Pages still move, so that the image of the program can be written.  far_hold(): nor do pages
 * move, no node is answered that it may end, and no thread is in a driver.  far_release() ends
 * both, in the parent. */
void far_hold_background(void);
void far_hold(void);
void far_release(void);
/* For a process that must have one thread: far memory has none from far_rest() to far_go_on(), and
 * no thread may wait for a page.  Nodes stay connected; the VM may be another one afterwards. */
void far_rest(void);
void far_go_on(void);

#endif
