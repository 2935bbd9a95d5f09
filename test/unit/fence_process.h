/*
 * See fence_model.h: what the parts of a process share.
 *
 *   fence_tree.c         the real sources of the tree, and what surrounds them
 *   fence_process.c      what a process believes, its slots, its death
 *   fence_program.c      how processes come to be, and what programs do
 */
#ifndef TEST_FENCE_PROCESS_H
#define TEST_FENCE_PROCESS_H

#include <pthread.h>
#include "far/cut.h"
#include "far/slotmap.h"
#include "fence_model.h"

/* How a process comes to be. */
enum start { NOT_STARTED, FIRST, FORKED, EXECUTED, AGENT };

struct seat {
        struct process p;
        enum start start;
        bool home;                      /* its actor waits to be started */
        struct tree tree;
        struct slotmap map;
        struct cutter cutter;
        struct far_node node[NODES], *nodes[NODES];
        pthread_mutex_t lease_lock;
        struct tree_child number;       /* FORKED */
        int expected;                   /* EXECUTED: of its program */
        unsigned nshared;               /* FORKED: pages that it holds once it is up */
        struct page shared[SLABS * PAGES];
};
extern struct seat seats[SEATS];


/* Shared by all processes. */
extern struct tree_head *head;
extern char *units;
extern _Atomic uint64_t *bits;
extern struct slab slabs[SLABS];
extern pthread_mutex_t tree_mutex;
extern const struct far_driver model_driver;
static inline struct tree_common *tree_counts(void) { return (struct tree_common *)units; }
static inline unsigned index_of(uint64_t slot) { return slot_slab(slot) * PAGES + slot_page(slot); }
void tree_reset(void);

/* ---- fence_process.c ---- */

void beliefs_reset(void);
struct page *believe(struct seat *s, uint64_t slot, uint64_t value);
void forget(struct seat *s, unsigned i);
void quiesce(struct seat *s);           /* waits until no transfer is under way */
void end_in_order(struct seat *s);
struct page *take_slot(struct seat *s); /* NULL: there is none */
/* The node of the next slab that it would use is lost. */
bool next_is_lost(const struct seat *s);
void find_room(struct seat *s);
void write_page(struct seat *s, struct page *g);
void write_new(struct seat *s);
void write_back(struct seat *s, unsigned i);
void read_page(struct seat *s, unsigned i);
void let_go(struct seat *s, unsigned i);

#endif
