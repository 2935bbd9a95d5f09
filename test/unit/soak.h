/*
 * What the parts of test_sum_soak share: the memory that all its processes have mapped, with a
 * node, the network to the node and the counts; and the bugs that can be planted.
 *
 *   soak_node.c      the node and its network, in one process that is never killed
 *   soak_page.c      pages, their sums, and what is said if they do not fit
 *   soak_actor.c     a process of the tree, which may be killed at any moment
 *   test_sum_soak.c  makes families of such processes, kills them and counts
 */
#ifndef TEST_SOAK_H
#define TEST_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "far/tree.h"

/* Few slots: so those of the dead are wanted, and the pages stay in the CPU's cache. */
#define SLABS 4
#define PAGES 160                       /* of each: a part of a chunk */
#define SLOTS (SLABS * PAGES)
#define LINKS 256                       /* of the living, and of the dead that are not cut yet */
#define RING  16                        /* writes under way on a link */

/* A bug in what the program does around the code under test.  Each must be found. */
enum plant {
        NO_PLANT,
        LATE_SUM,                       /* the sum is stored after the page was answered */
        SWAPPED,                        /* two pages change places, and their sums with them */
        UNSEEDED,                       /* like SWAPPED, with sums that do not depend on the slot */
        UNCUT,                          /* the dead are buried before the node has cut them off */
        EARLY_REUSE,                    /* a slot is freed while its owner's write is under way */
        FALSE_STILL,                    /* a process says `still` while its writes are under way */
        WRITE_SHARED,                   /* a page is written to a slot that others read */
        EARLY_READ,                     /* a page is read before its write was answered */
        FLIPPED,                        /* the node flips a bit */
        LOST,                           /* the node loses a page that it has answered */
        UNPROVED,                       /* sums of pieces are believed as they are found */
        PLANTS
};

/* A write on its way: sent, and not yet at the node. */
struct message {
        _Atomic uint32_t sent;          /* the sender sets it (release); the node clears it */
        uint32_t pad;
        uint64_t slot;
        char page[PAGE_SIZE];
};

/* A member's connection.  It outlives the member: the node takes all messages that the member sent,
 * until a process of the tree has the member cut off. */
struct link {
        _Atomic uint64_t owner;         /* the member's birth * 2, + LINK_CUT; 0: unused */
        struct message message[RING];   /* used in turn */
        /* of the node */
        uint32_t next, half;            /* message, and half of its page, to be taken next */
        bool lost;                      /* that page is */
        uint32_t rest;                  /* turns that the network holds it back */
};
#define LINK_CUT 1ull

struct world {
        char page[SLOTS][PAGE_SIZE];    /* the node's memory */
        struct link link[LINKS];
        _Atomic uint64_t turn;          /* of the node: counts up before each */
        pid_t node;                     /* the process that serves the links */
        enum plant plant;
        uint64_t seed;
        _Atomic uint32_t living;        /* about how many processes the tree has */
        /* For the end.  A process adds its reads and writes now and then; if it is killed, those
         * since then are not counted.  pieces: reads of parts that took no whole page. */
        _Atomic uint64_t reads, pieces, writes, forks, execs, kills, ends, cuts, shared, released;
        _Atomic uint64_t wanted;
        /* Pages that were found to be wrong: by the sum alone, by both, by the content alone. */
        _Atomic uint64_t false_alarms, alarms, missed;
        _Atomic uint64_t failures;      /* these, and all others */
        _Atomic uint32_t saying, said;  /* a process writes the text; it has */
        char text[400];                 /* about the first failure */
};
extern struct world *world;

/* 0 to n - 1 */
static inline uint32_t rnd(uint64_t *random, uint32_t n)
{
        *random ^= *random >> 12;
        *random ^= *random << 25;
        *random ^= *random >> 27;
        return (uint32_t)((*random * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

static inline char *node_page(uint64_t slot)
{
        return world->page[slot_slab(slot) * PAGES + slot_page(slot)];
}

/* --- soak_node.c --- */

/* In the process that is to be the node. */
void node_begin(const struct tree *t);
/* The node takes the messages that it can, and sleeps for a moment. */
void node_turn(void);
/* The driver's cut(): when it returns true, nothing of these members arrives any more.  False: the
 * node did not answer in time. */
bool node_cut(const struct tree_dead *d);
/* In a process that has become the member `birth`.  NULL: all links are in use. */
struct link *link_open(uint64_t birth);
/* Room for message number `number` of this link, counted from 0; NULL: none now. */
struct message *link_room(struct link *l, uint32_t number);
void link_send(struct message *m, uint64_t slot, const char *page);
bool link_is_over(const struct message *m);

/* --- soak_page.c --- */

/* Which page it is: by which member, by its birth, and which of the pages it ever wrote. */
#define STAMP(birth, version) ((uint64_t)(birth) << 32 | (uint32_t)(version))
#define STAMP_BIRTH(stamp)    ((unsigned long long)(stamp) >> 32)
#define STAMP_VERSION(stamp)  ((unsigned long long)(stamp) & 0xffffffff)

/* The first two words are stamp and slot; the rest follows from the stamp. */
void page_make(char *page, uint64_t slot, uint64_t stamp);
void page_store_sum(const struct tree *t, uint64_t slot, const char *page, bool pieces);
/* Stores as much as a process does that is killed when it has stored the sums of n pieces. */
void page_store_some(const struct tree *t, uint64_t slot, const char *page, unsigned n);
/* Is the page that this process holds in the slot the one with this stamp?  By its sum, and by some
 * of its words, which n chooses.  If it is not, that is a failure. */
void page_check(const struct tree *t, uint64_t slot, uint64_t stamp, uint64_t n);
/* Like page_check(), for some bytes of the page, as they are read for vmg_read.  True: the sums of
 * their pieces were enough. */
bool page_check_part(const struct tree *t, uint64_t slot, uint64_t stamp, uint64_t n);

/* Counts a failure; the text of the first one is kept. */
void failure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The end of a child: it was killed, or its status is 0, or it is a failure. */
void check_end(pid_t pid, int status);

/* --- soak_actor.c --- */

extern int world_fd;                    /* stays open over exec */
/* In a child: a process of the tree, until it ends or is killed. */
_Noreturn void actor_child(const struct tree *t, const struct tree_child *c);
/* Like actor_child(), after exec, with the text that the old program gave. */
_Noreturn void actor_again(const char *text);

/* Buries what can be buried; before a fork, as slabs_cut() in runtime/far/slabs.c. */
void bury(struct tree *t);
/* Buries for a process that lacks slots, as far_lease().  True: some became free. */
bool bury_for_slots(struct tree *t);

#endif
