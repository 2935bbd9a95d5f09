/*
 * The sequence of slabs, and the part of this process in its tree: slabs.c.  Its own parts share
 * slabs.h.
 */
#ifndef VMRUN_FAR_SEQUENCE_H
#define VMRUN_FAR_SEQUENCE_H

#include "far/node.h"
#include "far/tree.h"

/* Cuts memory nodes to `room` bytes of guest-physical space, and all nodes to what the table of
 * slabs can name. */
void slabs_init(struct far_node *const nodes[], unsigned n, uint64_t room);
/* The process tree of this process (tree.h), made if there is none yet; NULL with a message if that
 * fails.  For fork. */
struct tree *slabs_tree(void);
/* The descriptor of that tree, or -1.  *alone: no other process is in it.  With alone NULL it takes
 * no lock: for a process that shares our address space and may be killed at any time. */
int slabs_tree_fd(bool *alone);
/* For the next program of this process; life -1: it has no number. */
struct tree_child slabs_successor(void);
/* As those of tree.h, for a tree that may not be there.  slabs_expected() takes no lock. */
int slabs_expect(void);
struct tree_child slabs_expected(int number);
void slabs_expect_end(int number);
/* See far_leaves(). */
void slabs_leaves(bool leaves);
/* After execve: the first lease joins the tree of this descriptor, as `next`, instead of making
 * one.  What the old program held in it is released. */
void slabs_adopt(int fd, const struct tree_child *next);
/* This process leaves the tree.  True: it is the last one, so no process needs the nodes any more.
 * False also if that cannot be found out within limit_ms. */
bool slabs_last(bool still, unsigned limit_ms);
/* Stops leasing: no lease is under way, and none will begin.  False: one is still under way after
 * limit_ms. */
bool slabs_stop(unsigned limit_ms);

/* Slots of each node that this process holds, in pages, as far as that is known without a lock; by
 * a look at each word in use.  Any thread. */
void slabs_used(uint64_t used[NODES_MAX]);
/* How many pages of all processes of the tree each node lacks, that others have: copies that it
 * missed, or that are not made yet.  Any thread. */
void slabs_lacking(uint64_t lacking[NODES_MAX]);
/* Pages of all processes of the tree that node n has, in the slabs that this process uses; and
 * *left, those of them that no other node has that answers and does not drain.  Any thread. */
uint64_t slabs_at(const struct far_node *n, uint64_t *left);
uint64_t far_leased_pages(void);
/* Slots of all nodes that this process holds, those of resident pages included. */
uint64_t far_used_pages(void);

#endif
