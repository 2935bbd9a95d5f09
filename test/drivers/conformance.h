/*
 * What each driver must do whatever its node is (far/node.h), as cases over the harness.  The
 * program opens a node, calls harness_start(), then these, and closes the node; its own faults and
 * servers are its own.  A case that finds the driver wrong does not return (harness_wrong()).
 */
#ifndef TEST_DRIVERS_CONFORMANCE_H
#define TEST_DRIVERS_CONFORMANCE_H

#include "test/drivers/harness.h"

#define CONFORM_RUN 64u                 /* pages: longer than what a driver joins */

/* Random transfers until `count` are posted, or for `ms` if that is not 0. */
struct traffic {
        uint64_t count;
        unsigned ms;
        unsigned depth;                 /* requests under way, at most; 0: as there are frames */
        unsigned run;                   /* neighbours that are posted together, at most; 1: none */
        unsigned gap_ms;                /* between two posts; 0: as fast as there is room */
};
/* Pages in any order and of any kind, again and again; parts of them by the node's unit.  Each read
 * finds what was written last.  On return requests may still be under way. */
void conform_traffic(const struct traffic *t);
/* When nothing is under way any more: each page whose content is known, once more. */
void conform_read_back(void);
/* A forked child and its parent use the slabs at once, and find what the other has written.  At
 * least 1,100 pages. */
void conform_child(void);
/* The next program of this process continues with the slabs, as after execve: `next` becomes the
 * harness's node.  The old node is not closed, since execve closes nothing by name.  False: the
 * driver cannot keep it. */
bool conform_kept(struct far_node *next);
/* The rest of the node can be leased, and of more than the rest nothing. */
void conform_lease_end(void);
/* The node is down: what fails at once, and what does not.  slab: one of the tree's. */
void conform_down(struct far_place slab);
/* The node is lost: it takes all requests, and gives them back. */
void conform_lost(void);

#endif
