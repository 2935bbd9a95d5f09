/*
 * The table of nodes and of the slabs on them: nodes.c.
 */
#ifndef VMRUN_FAR_NODES_H
#define VMRUN_FAR_NODES_H

#include "far/node.h"

/* The node that is used if none is named. */
extern const struct node_option far_default_node;
/* The option of a node that returns, which lives as long as it; NULL: no memory. */
const struct node_option *far_returned_option(const struct far_node *was);
/* The node that o names, as far as its words tell: nothing is opened but its driver.  NULL with
 * why.  o must outlive the node. */
struct far_node *far_node_name(const struct node_option *o, char why[FAR_WHY]);
/* Opens such a node; NULL with why, and the node is gone.  before: what the program before execve
 * kept for it, which must outlive the node, or NULL.  member: of struct far_node;
 * FAR_FIRST_MEMBER: this process is the first of its tree; 0: not known until it has joined one. */
#define FAR_FIRST_MEMBER 1
struct far_node *far_node_begin(struct far_node *n, const struct far_kept_node *before,
                                uint64_t member, char why[FAR_WHY]);
/* Both. */
struct far_node *far_node_open(const struct node_option *o, const struct far_kept_node *before,
                               uint64_t member, char why[FAR_WHY]);
void far_node_close(struct far_node *n);
/* Appends a node to the table, also while other threads read it. */
void far_node_add(struct far_node *n);
struct far_node *const *far_node_list(void);
unsigned far_nodes(void);
struct far_node *far_node_at(unsigned i);
uint64_t far_total_pages(void);         /* in all nodes, each page with its copies */
/* The host's part of slab number i of CONTROL->slabs.  far_slab_none() makes it one without places;
 * by one thread at a time, and before that far_slab() may not be asked. */
struct far_slab *far_slab(uint32_t i);
struct far_slab *far_slab_none(uint32_t i);
/* In a forked child: loads a module again; several nodes may use it.  Libraries like librdmacm keep
 * state of the parent for as long as they are loaded, and none of their functions drops it. */
void far_reload(const void *module);

#endif
