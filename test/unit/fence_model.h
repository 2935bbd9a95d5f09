/*
 * The model of docs/protocol.md (test_fence_model.c): what its parts share.
 *
 *   test_fence_model.c   the run: faults, its three phases, what must hold in the end
 *   fence_world.c        lives that end at any step, locks, time, the network
 *   fence_node.c         memnode: its real sources, and threads that serve connections
 *   fence_client.c       the I/O side of a process: links, transfers, CUT
 *   fence_process.h      processes, and the real sources of their tree
 *
 * Everything runs in coroutines (pager_sched.h).  The tick of the scheduler steps the network, the
 * I/O sides and the faults, which no coroutine chooses.
 */
#ifndef TEST_FENCE_MODEL_H
#define TEST_FENCE_MODEL_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "pager_sched.h"

enum {
        SEATS = 5,                      /* processes at one time */
        NODES = 3,                      /* the last one has no slab */
        SLABS = 2,                      /* slab i is at node i */
        PAGES = 5,                      /* slots of a slab: few, so that processes meet */
        LINKS = 2,                      /* of a member to a node: for reads, for writes */
        DEPTH = 3,                      /* transfers of a link at one time */
        WIRES = 96,                     /* connections, with what comes late */
        THREADS = 56,                   /* of memnode */
        QUEUE = 16,                     /* messages of a connection under way */
        NUMBERS = 96,                   /* of processes in the tree */
};

/* The rules that the model's own parts follow, and that can be left out (RULE=n). */
enum rule {
        NO_BUG,
        SAME_GENERATION,                /* 6: a connection is made again with its old generation */
        NOT_SENT_AGAIN,                 /* 6: requests without an answer are taken for done */
        OLD_ANSWERS,                    /* 6: answers of a connection that was closed count */
        FREED_EARLY,                    /* 7: a slot is freed before its write was answered */
        SHARED_EARLY,                   /* 7: and is shared before that */
        STILL_EARLY,                    /* 7: a process says "still" while writes are under way */
        ANY_CUT_ANSWER,                 /* 7: an answer to an earlier CUT is taken for this one's */
        CUT_TIMES_OUT,                  /* 8: a CUT that was not answered in time counts */
        CHILD_IS_PARENT,                /* a child connects as the member that its parent is */
        SUCCESSOR_IS_OLD,               /* a program connects as the member before execve */
        STAYS_AT_LOST,                  /* 9: a node whose memory is gone is used further */
        RULES
};
extern enum rule bug;

enum phase {
        CHAOS,                          /* faults */
        CALM,                           /* no more: every living process reads and writes */
        END,                            /* all are dead, and the agent comes to bury them */
        OVER,
};
extern enum phase phase;
/* The frequent trouble of a run: all at once would leave no time for what follows from each. */
extern enum trouble {
        USUAL,
        STALLS,                         /* threads that wait long for the CPU before they lock */
        LONG_SLICES,                    /* a receive that takes longer than memnode waits for it */
        SLOW_CUTS,                      /* longer than the process that asks waits */
        TROUBLES,
} trouble;
struct counts {
        /* cuts_blind: by a process that does not know all nodes with slabs */
        uint64_t runs, reads, writes, rejoins, cuts, cuts_late, cuts_blind, forks, execs, kills,
                restarts, kept, expired, repeated, late;
};
extern struct counts met;

/* ---- lives (fence_world.c) ---- */

/* A process or a thread of memnode: it can end at any step. */
struct life {
        jmp_buf top;
        bool doomed;                    /* continues at `top`, from its next step on */
        bool stopped;
        bool (*ready)(void *);
        void *waits_for;
};
extern struct life *running;
/* At each atomic operation and lock of the code under test. */
void crash_point(void);
void wait_until(bool (*ready)(void *), void *arg);
/* False: that time has come, and ready() has not. */
bool wait_until_ms(bool (*ready)(void *), void *arg, int64_t ms);
bool never(void *arg);
extern int64_t clock_ms;

/* A mutex of the code under test. */
struct model_lock { struct life *owner; };
void model_lock(void *mutex);
bool model_trylock(void *mutex);
void model_unlock(void *mutex);
bool model_wait(void *cond, void *mutex, int64_t until);        /* false: time-out */
void model_wake(void *cond);

/* ---- the network (fence_world.c) ---- */

enum kind { ASK, INFO, READ, WRITE, GOODBYE };
enum answer { OK, AGAIN, GONE, DEAD };
struct message {
        enum kind kind;
        uint8_t parts;                  /* that have arrived */
        enum answer answer;
        uint32_t slot;                  /* page of its slab */
        uint64_t number;                /* an answer has its request's */
        uint64_t value;                 /* of a page; of ASK's answer: the incarnation */
        const char *name;               /* ASK, INFO */
};
struct wire {
        bool used;
        uint64_t serial;
        unsigned node;
        /* client's end */
        bool closed, end_sent;
        bool listens;                   /* OLD_ANSWERS: although it is closed */
        /* on the way to the node, then in its socket */
        struct message sent[QUEUE], got[QUEUE];
        unsigned nsent, ngot;
        bool end_got;                   /* the end of the stream has arrived */
        uint64_t held_until;            /* step: the network holds it back */
        /* the node's end */
        bool served, shut, over;        /* has a thread; shut down; closed */
        /* on the way back */
        struct message back[QUEUE];
        unsigned nback;
        /* all messages that were sent, to repeat them */
        bool repeats;
        struct message log[QUEUE];
        unsigned nlog;
};
extern struct wire wires[WIRES];
/* NULL: there are too many. */
struct wire *wire_new(unsigned node);
void wire_send(struct wire *w, const struct message *m);
/* Takes the next answer. */
bool wire_has_answer(const struct wire *w);
bool wire_answer(struct wire *w, struct message *m);
void wire_close(struct wire *w);        /* by the client; NULL: nothing */
void net_reset(void);
void net_step(void);
/* Memnode was restarted: requests to make its leases come once more. */
void net_remake(void);
extern uint64_t unreachable_until[NODES];

/* Text that lives as long as the run. */
const char *keep_text(const char *text);
void *run_alloc(size_t n);
void run_free(void *p);
void run_free_all(void);

/* ---- memnode (fence_node.c) ---- */

void node_reset(uint32_t grace_ms);
void node_spawn(void);
void node_restart(bool keeps);          /* keeps: with its leases, else without its memory */
void node_accept(struct wire *w);
bool node_is_gone(const char *hex);     /* a lease of that name has ended */
bool node_is_quiet(void);               /* nothing is attached */
/* A page of a slab was written: a newer one must not have been there before. */
void page_arrives(unsigned node, uint32_t slot, uint64_t value);

/* ---- the I/O side of a process (fence_client.c) ---- */

struct process;
struct far_range;
struct transfer { bool used; enum kind kind; uint32_t page; uint64_t slot, value, number; };
struct link {
        enum { DOWN, ASKED, UP } state;
        struct wire *wire, *old;        /* old: OLD_ANSWERS, as long as it is that one */
        uint64_t old_serial;
        uint32_t generation;
        struct transfer t[DEPTH];
};
/* What a process knows of a node. */
struct view {
        char hex[33];
        uint64_t incarnation;
        uint64_t member;
        bool lost;
        struct link link[LINKS];
        struct wire *cut;               /* an older CUT may still be answered there */
};
/* Processes send pages right behind the request for a connection.  vmrun does not, but the rules of
 * memnode allow it: so they are checked for themselves. */
extern bool pipelines;
void client_step(struct process *p);
/* A page of the program, by its index, is read or written. */
bool client_can(const struct process *p, enum kind kind, uint64_t slot);
void client_post(struct process *p, enum kind kind, uint32_t page, uint64_t slot, uint64_t value);
bool client_idle(const struct process *p);
void client_close(struct process *p, bool goodbye);
/* far_driver.cut */
int client_cut(struct process *p, unsigned node, const struct far_range *dead, unsigned count,
               unsigned limit_ms);

/* ---- processes (fence_process.h) ---- */

struct page { uint64_t slot, value; bool busy; };
struct process {
        struct life life;
        unsigned seat;
        bool alive;                     /* from its start to its death; then its actor unwinds */
        bool up;                        /* it has its number */
        bool ending;                    /* in order */
        bool attached;                  /* makes connections */
        bool content;                   /* in CALM: it has read and written */
        uint64_t pid;
        uint64_t files;                 /* its file descriptions (tree_files.h): a set */
        struct view view[NODES];
        uint64_t numbers;               /* of requests */
        unsigned npages;
        struct page page[SLABS * PAGES];
};
extern struct process *process_at(unsigned seat);
void process_reset(void);
void process_spawn(void);
void process_kill(struct process *p);
unsigned process_slabs(const struct process *p);        /* that it uses */
/* By the I/O side: a transfer is over; value: of the page that was read. */
void process_done(struct process *p, const struct transfer *t, uint64_t value);
/* The node is lost for good. */
void process_loses(struct process *p, unsigned node);
/* Some process will have the dead cut off again, later. */
bool process_waits(void);
bool process_has_tree(void);
/* Starts the agent, a process that buries all others, which are dead.  False: it cannot yet. */
bool process_start_agent(void);
bool process_agent_done(void);
/* When it has buried them.  Returns a text that says what is wrong; NULL: nothing is left over. */
const char *process_left_over(void);

#endif
