/*
 * The model of copies (test_copies_model.c): what its parts share.
 *
 *   test_copies_model.c  the run: faults, its three phases, what must hold
 *   copies_process.c     lives; what a process believes, its slots, its death
 *   copies_program.c     how processes come to be, and what programs do
 *   copies_tree.c        the real sources of the tree, and what surrounds them
 *   copies_request.c     the real copies.c, request.c and outage.c, in each process's own memory
 *   copies_repair.c      the real held.c, repair.c and whole.c, also in each process's own memory
 *   copies_drain.c       the real drain.c and moves.c, also in each process's own memory
 *   copies_node.c        memory nodes, the network, and a driver
 *
 * A process has two coroutines (pager_sched.h): its program, and its I/O side.
 */
#ifndef TEST_COPIES_MODEL_H
#define TEST_COPIES_MODEL_H

#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi_control.h"
#include "abi_rings.h"
#include "far/cut.h"
#include "far/node.h"
#include "far/slotmap.h"
#include "far/tree.h"
#include "pager_sched.h"

/* A process that buries looks at each slot of a chunk, and for all chunks: these are enough. */
#undef CHUNK_PAGES
#define CHUNK_PAGES 64u
#undef SLAB_CHUNKS
#define SLAB_CHUNKS 64u

enum {
        SEATS = 4,                      /* processes at one time */
        NODES = 3,
        SLABS = 2,
        PAGES = 4,                      /* slots of a slab: few, so that processes meet */
        SLOTS = SLABS * PAGES,
        HELD = SLOTS + 1,               /* by a process: one more, to write a page elsewhere */
        PLACES_MAX = 4,                 /* of a slab: those of the start, and more */
        NUMBERS = 64,                   /* of processes in the tree */
};

/* The rules that the model's own parts follow, and that can be left out (RULE=n). */
enum rule {
        NO_BUG,
        UP_UNFENCED,                    /* far_up() before the older connection has ended */
        LOST_UNSAID,                    /* a node is lost without far_down() */
        CUT_UNDONE,                     /* a CUT is answered, but nothing was cut off */
        CUT_UNANSWERED,                 /* a CUT that was not answered counts */
        SAYS_IT_FENCES,                 /* a node that does not */
        FREED_EARLY,                    /* a slot is freed before its write is over */
        STILL_EARLY,                    /* a process says "still" while writes are under way */
        CHILD_IS_PARENT,                /* a child notes what it gave up as its parent */
        RULES
};
extern enum rule bug;

enum phase {
        CHAOS,                          /* faults */
        CALM,                           /* no more: every living process reads and writes */
        END,                            /* one is left: it buries the others, and takes all */
        OVER,
};
extern enum phase phase;
struct counts {
        uint64_t runs, reads, writes, one_copy, downs, late, forks, execs, kills, ends, cuts,
                restarts, lost, gone, due, copied, places, drains, drained, unanswered, whole,
                refused;
};
extern struct counts met;

/* ---- processes (copies_process.c) ---- */

struct seat;
/* A program, or the I/O side of a process: it can end at any step. */
struct life {
        struct seat *seat;
        jmp_buf top;
        bool doomed;                    /* continues at `top`, from its next step on */
        bool io;
        bool home;                      /* waits for a process to start */
        bool (*ready)(void *);
        void *waits_for;
};
extern struct life *running;
/* At each atomic operation of the code under test. */
void crash_point(void);
void wait_until(bool (*ready)(void *), void *arg);
extern int64_t clock_ms;

struct page {
        enum { UNUSED, EMPTY, HELD_STILL, READS, WRITES } state;
        uint64_t slot, value;
        uint64_t frame, bounce;         /* their contents */
        struct io_entry entry;
        bool asked;                     /* not yet taken by the I/O side */
        bool inherited;                 /* FORKED: held once the process is up */
};
/* What a process knows of a node. */
struct view {
        uint64_t serial;                /* of its connection; 0: it is down */
        bool broken, lose;              /* the I/O side has not noticed it yet */
        uint64_t unreachable_until;     /* step */
        /* What the node knows of this process: it has connected; it has answered that it needs
         * the node no more; when its connection broke last. */
        bool known, answered;
        uint64_t broke_at;              /* step */
};
enum start { NOT_STARTED, FIRST, FORKED, EXECUTED, AGENT };
struct seat {
        struct life program, side;
        enum start start;
        bool alive;                     /* from its start to its death; then its lives unwind */
        bool up;                        /* it has its number */
        bool attached;                  /* its I/O side works */
        bool stopped, content;
        bool late;                      /* it connects late for the first time */
        uint64_t pid;
        const struct seat *parent;      /* which had this pid; NULL: none */
        uint64_t parent_pid;
        uint64_t files;                 /* its file descriptions (tree_files.h): a set */
        struct tree tree;
        uint32_t number;                /* as its I/O side knows it */
        struct tree_child child;        /* FORKED: what it is to be */
        struct slotmap map;
        struct cutter cutter;
        pthread_mutex_t lease_lock;
        struct far_node node[NODES], *nodes[NODES];
        struct far_slab slab[SLABS];
        struct view view[NODES];
        struct page page[HELD];
        uint64_t copy_frame[REPAIR_FRAMES];
        struct life *held_owner;        /* has the lock of held.c */
};
extern struct seat seats[SEATS];
extern bool abandoned[SLOTS];
extern uint64_t place_added;            /* step of the last one */
static inline struct seat *self(void) { return running->seat; }

void beliefs_reset(void);
void nap(unsigned steps);
void hold(struct page *g, uint64_t slot);
void forget(struct page *g);
/* Asks for a page to be written, with new content, or to be read. */
void ask(struct seat *s, struct page *g, bool write);
bool all_over(void *seat);              /* all pages that were asked for */
void settle_all(struct seat *s);        /* looks at the pages that are over */
void quiesce(struct seat *s);
struct page *take_slot(struct seat *s); /* NULL: there is none */
void let_go(struct seat *s, struct page *g);
bool write_new(struct seat *s);
void write_back(struct seat *s, struct page *g);
void find_room(struct seat *s);
void find_places(struct seat *s);       /* copies_drain.c */
void pause_repairs(struct seat *s);     /* and waits for the repairs under way */
void process_kill(struct seat *s);
/* Every copy that counts as good is right, and there is one. */
void check_copies(void);
/* The process, which has all its pages elsewhere, lets the node end; and the node waits for all
 * others of which that is not true. */
void check_answer(const struct seat *s, unsigned node);

/* ---- programs (copies_program.c) ---- */

void process_reset(void);
void process_spawn(void);
bool process_start(enum start how);     /* the first one, or the last */
extern bool agent_done;

/* ---- the tree (copies_tree.c) ---- */

extern struct tree_head *head;
extern char *units;
extern _Atomic uint64_t *bits;
extern struct slab slabs[SLABS];
extern struct life *tree_owner;         /* has the tree's lock */
extern bool tree_torn;                 /* its owner died; the next owner mends what it guards */
static inline unsigned index_of(uint64_t slot) { return slot_slab(slot) * PAGES + slot_page(slot); }
void tree_reset(unsigned replicas);

/* ---- requests (copies_request.c) ---- */

void memory_reset(struct seat *s);
/* Before a life continues: the memory of request.c is that of its process. */
void memory_of(struct seat *s);
void memory_free_all(void);
bool memory_is_loaded(const struct seat *s);
/* What surrounds request.c and repair.c. */
struct model_control { uint64_t frame_table, notices; _Atomic uint32_t parts_read;
                       uint32_t nframes, nslabs, tree_number, stats_on;
                       uint32_t shadow_paging; const struct slab *slabs; };
struct model_control *control_of_self(void);
void side_step(void);                   /* a round of the I/O side of self() */
uint64_t request_slot(const struct far_request *r);
/* Of the process of self(): which copies are wanting now, for check_whole(). */
void see_copies(void);
extern uint64_t called_over[SLOTS];     /* the newest page of a slot whose write was over */
/* By copies.c, of any process. */
bool is_good_at(uint64_t slot, unsigned place);

/* ---- repair (copies_repair.c) ---- */

void repair_memory_out(unsigned seat);
void repair_memory_in(unsigned seat);
void repair_memory_reset(unsigned seat);
unsigned repairs_of(const struct seat *s);      /* under way */
uint64_t repairs_made(void);                    /* by the process that runs */
/* The process has said, or is about to say, that it copies nothing: so it holds no slot. */
void check_still(const struct seat *s);
/* The process that runs copies the slot: no other process does, if it is shared. */
void check_repairer(uint64_t slot);
/* The process ends: DUE slots of its own, and those that it copies, may stay DUE for good. */
void repairs_die(const struct seat *s);

/* ---- draining nodes (copies_drain.c) ---- */

/* drain_step(), and the process takes no node for drained on which its next write depends. */
void drain_turn(void);
/* A write is over, and these places have the page. */
void check_written(uint64_t slot, unsigned good);
/* Each node that is to be drained is drained for the process, or cannot be. */
bool is_all_drained(const struct seat *s);
void inherit_drained(struct seat *s, const bool drained[NODES]);
void inherit_nodes(struct seat *child, const struct seat *parent);
void note_member(struct seat *s);
void drain_memory_out(unsigned seat);
void drain_memory_in(unsigned seat);
void drain_memory_reset(unsigned seat);

/* ---- nodes (copies_node.c) ---- */

struct node {
        uint64_t value[SLOTS];
        bool gone;                      /* it has ended, or was restarted without its memory */
        bool fences;
        bool drained;                   /* it drains, and ends when no process needs it */
        uint64_t unreachable_until;
};
extern struct node nodes[NODES];
/* One look in first_after makes the first connection of a process that connects late. */
extern uint32_t first_after;
extern uint32_t deaf_in;                /* one CUT in deaf_in is not answered */
extern uint32_t slow_in;                /* one write in slow_in comes very late */
extern const struct far_driver model_driver;
void node_reset(void);
void node_restart(unsigned node);
/* Nodes that are drained end when all have answered that it knows. */
void node_ends(void);
void net_step(void);
/* The process is dead: its flights have no request any more. */
void net_orphan(const struct seat *s);
void net_forget(const struct seat *s);  /* and its driver is another one */
/* A round of the driver of self(): answers, breaks, connections. */
void driver_step(void);

#endif
