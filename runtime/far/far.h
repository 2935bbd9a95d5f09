/*
 * Far-memory nodes and their drivers.
 *
 * A node is one --node URL; a driver is what its scheme means.  Space is leased slab by slab when the cleaner asks (EXIT_LEASE), in the
 * order of the --node options, so nothing at start grows with a node's size.  A driver tells how the data of its slabs moves:
 * SLAB_MEMORY is mapped at the same address in host and guest and kern copies; SLAB_REMOTE goes through the rings.
 *
 * Functions return 0 or -errno; where there is a `why`, it receives one sentence for the user that names the thing, the cause and the
 * cure, without the URL.
 */
#ifndef VMRUN_FAR_H
#define VMRUN_FAR_H

#include <stddef.h>
#include <stdint.h>
#include "../thread.h"

#define FAR_WHY 256

struct far_node {
        const struct far_driver *driver;
        const char *url;                /* as given; lives as long as the node */
        unsigned index;                 /* order of --node */
        uint64_t pages;                 /* capacity: set by open, may be lowered before the first lease */
        uint64_t leased;                /* pages in slabs so far; kept by far.c */
        void *data;                     /* the driver's own */
};

struct far_driver {
        const char *scheme;             /* "mem" for mem:... */
        enum slab_kind kind;
        /* rest: what follows the scheme and its colon.  Sets pages and data. */
        int (*open)(struct far_node *n, const char *rest, char why[FAR_WHY]);
        /* One more slab of `pages` pages (at most SLAB_SHIFT's worth, and within n->pages), which begins at page `first` of the node.
         * Fills s.  Called by one thread at a time. */
        int (*lease)(struct far_node *n, struct vm *vm, uint64_t first, uint32_t pages, struct slab *s);
        void (*close)(struct far_node *n);
        /* For -v and the statistics: "mem: 4G in this process". */
        void (*describe)(const struct far_node *n, char *text, size_t size);
};
extern const struct far_driver far_mem;

/* Opens the node of a URL; NULL with why. */
struct far_node *far_node_open(const char *url, char why[FAR_WHY]);
void far_node_close(struct far_node *n);

/* Opens all nodes of opt, or the default one, and ends vmrun with a sentence when one cannot be had.  room: bytes of guest-physical
 * space for nodes that are plain memory; they are cut to it with a notice.  Touches no VM, so it can come before it. */
void far_init(uint64_t room);
void far_close(void);
uint64_t far_total_pages(void);         /* what all nodes can hold */
uint64_t far_leased_pages(void);
unsigned far_nodes(void);
const struct far_node *far_node(unsigned i);

/* The next slab in CONTROL->slabs: its index, -ENOSPC when every node is used up. */
int64_t far_lease(struct vm *vm);

/* EXIT_LEASE */
int64_t far_exit_lease(struct thread *t, struct exit_req *rq);

#endif
