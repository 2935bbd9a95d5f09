/*
 * The allocator of a process tree, the host's part: the memory file that all vmrun processes of a
 * tree have open, which processes are alive, and slots that several processes hold.
 * include/allocator.h has the part that kern sees; docs/far.md the protocol.
 *
 * Functions return 0 or -errno.  Those that end in _locked are called between tree_lock() and
 * tree_unlock().
 */
#ifndef VMRUN_FAR_TREE_H
#define VMRUN_FAR_TREE_H

#include <pthread.h>
#include <stddef.h>
#include "base/options.h"
#include "far/node.h"
#include "include/allocator.h"
#include "piece_sums.h"

/* A slab, with the data that all processes of the tree share. */
struct tree_place {
        uint64_t node;
        /* its first page, in the node's count of leased pages */
        uint64_t first;
        uint64_t word[3];               /* as in struct far_place */
};
struct tree_slab {
        uint32_t kind, pages, pad;
        _Atomic uint32_t places;        /* of a slab that is listed, stored with release */
        struct tree_place place[FAR_PLACES];
};
/* Leases of a node so far, as in struct far_node. */
struct tree_node {
        uint64_t pages, leased;
        uint32_t slabs, slab_most;
        /* Of a node that a process of the tree has found served again, after it was drained or
         * lost: its former number, plus 1; and how to join its lease. */
        uint32_t again;
        struct far_kept_node kept;
};
/* A process number.  The byte of the file with this number is locked as long as the process
 * lives. */
struct tree_record {
        enum { RECORD_FREE, RECORD_USED, RECORD_DEAD } state;
        int32_t pid;                    /* for messages; 0: not up yet, so it sent nothing */
        /* LEAVE_SOON: the process is about to end.  LEAVE_STILL: and no write of its own is under
         * way.  LEAVE_EXEC: as LEAVE_STILL, since the process executes another program; it stays if
         * that fails. */
        enum { LEAVE_NOT, LEAVE_SOON, LEAVE_STILL, LEAVE_EXEC } leaving;
        /* RECORD_DEAD: all nodes that can have ended the process's connections, for good */
        bool cut;
        uint64_t birth;                 /* counts up from 1; no two processes share one */
};

/* The first part of the file. */
struct tree_head {
        uint64_t magic;
        uint32_t version;               /* ABI_VERSION, and with it the size of everything */
        uint32_t nnodes;
        /* Robust; guards the fields below.  If its owner dies, tree_lock() mends them. */
        pthread_mutex_t lock;
        uint32_t max_slabs;             /* for which the file has room; constant */
        uint32_t nslabs;                /* slab entries below it do not change any more */
        uint64_t births;
        uint64_t told;                  /* nodes know which processes ended, of births up to here */
        uint64_t silences;              /* how often a node was silent when it was to cut */
        /* By node in tree_common.uncut: `silences` after its last one.  A list of the dead that was
         * made later has all processes that were buried without the node. */
        uint64_t untold[NODES_MAX];
        struct tree_node node[NODES_MAX];
        struct tree_record record[TREE_PROCESSES];
        struct tree_slab slab[SLABS_MAX];
};

/* Sums of the pieces of a slot's page, for reads of a part (sums.h). */
struct slot_pieces { _Atomic uint32_t sum[PIECES]; };

/* The file: head, units (include/allocator.h), then the holder bits: of each slab, of each process,
 * a bit a slot; then the pieces: of each slab, of each slot.  Its length follows from the number of
 * slabs, since limits of file size and of address space (ulimit -f, -v) also count holes. */
#define TREE_HEAD_SIZE   (2ull << 20)
#define SLAB_BITS_SIZE   ((uint64_t)TREE_PROCESSES * SLAB_PAGES / 8)
#define SLAB_PIECES_SIZE ((uint64_t)SLAB_PAGES * sizeof(struct slot_pieces))
_Static_assert(sizeof(struct tree_head) <= TREE_HEAD_SIZE, "struct tree_head fits its room");
static inline uint64_t tree_units_size(uint32_t slabs)
{
        return (1 + (uint64_t)slabs) * SLAB_MAP_SIZE;
}
static inline uint64_t tree_size(uint32_t slabs)
{
        return TREE_HEAD_SIZE + tree_units_size(slabs) +
               slabs * (SLAB_BITS_SIZE + SLAB_PIECES_SIZE);
}
static inline struct slot_pieces *slot_pieces(struct slot_pieces *pieces, uint64_t slot)
{
        return &pieces[(uint64_t)slot_slab(slot) * SLAB_PAGES + slot_page(slot)];
}

/* A process's view. */
struct tree {
        /* Private, and mapped.  All processes of the tree have this file description, so no lock is
         * held through it; but the locks of other processes are asked for through it. */
        int fd;
        /* Private: the description that keeps this process alive; -1: the process has no number, or
         * there is no /proc, and so no other process. */
        int life;
        uint32_t self;                  /* this process's number; TREE_PROCESSES: it has none yet */
        struct tree_head *head;
        char *units;
        _Atomic uint64_t *bits;
        struct slot_pieces *pieces;
        uint32_t max_slabs;
};

/* --- tree.c --- */

/* Makes the file, for the first process of a tree and at most max_slabs slabs, and maps it.  units:
 * the address for struct tree_common, NULL: any. */
int tree_make(struct tree *t, uint32_t max_slabs, void *units, char *why, size_t n);
/* Maps a file inherited by exec, and takes over its private descriptor; refuses any other file.  In
 * a forked process all is already mapped. */
int tree_attach(struct tree *t, int fd, void *units, char *why, size_t n);
void tree_close(struct tree *t);

/* May wait as long as another process takes to lease a slab, or until that process dies. */
void tree_lock(struct tree *t);
/* False: another process has it for longer than limit_ms. */
bool tree_lock_within(struct tree *t, unsigned limit_ms);
void tree_unlock(struct tree *t);
/* Lets other processes have the lock for a moment; if a process unlocks and locks at once, they do
 * not get it. */
void tree_yield(struct tree *t);

/* --- lives and deaths (tree_life.c) --- */

/* Gives this process a number.  -EAGAIN: all are in use. */
int tree_join(struct tree *t);
/* Before fork, or for the program that this process executes: a number and its descriptor.  Nodes
 * that are drained for this process are drained for that number.  [I] Until tree_child_left() this
 * process makes no other child: it would have that descriptor too, and keep the number alive.
 * -EAGAIN: all are in use. */
int tree_child(struct tree *t, struct tree_child *c);
/* In the child, or in the program, which has inherited the descriptor: takes that number.  Before
 * anything else: until then a child keeps its parent alive. */
void tree_be_child(struct tree *t, const struct tree_child *c);
/* In the parent: the child was made, or will not be; or the execve has failed. */
void tree_child_left(const struct tree_child *c);
/* Before a child is made that shares this memory: a number for the program that it executes, or
 * -errno.  The number needs no descriptor, which other children would have too: the descriptor that
 * keeps this process alive keeps the number as well, and that child has it. */
int tree_expect(struct tree *t);
/* In that child, when it executes the program.  Takes no lock, as the child may be killed at any
 * time. */
struct tree_child tree_expected(const struct tree *t, int number);
/* The child has executed the program, or has ended. */
void tree_expect_end(const struct tree *t, int number);

/* Notices which processes have died, and buries the dead, for some milliseconds only: the next call
 * continues.  Returns how many slots became free.  If a slab is remote, the last writes of a dead
 * process may still be on their way to its slots: it is buried only after it was cut off, unless it
 * had said that none is under way. */
uint64_t tree_mend_locked(struct tree *t);
/* tree_mend_locked() has not come to the end. */
bool tree_unburied_locked(const struct tree *t);

/*
 * Cutting off: tree_dead_locked(), far_driver.cut() of each node without the lock, and then
 * tree_cut_locked(), by which the next tree_mend_locked() buries them.  Any process may do it, also
 * several at once.
 */
struct tree_dead {
        uint64_t silences;              /* of struct tree_head, when the list was made */
        unsigned n;
        struct far_range range[TREE_PROCESSES + 1];
};
/* Should processes be cut off now?  wanted: their slots are needed; else only if very many dead
 * processes are not cut off yet. */
bool tree_uncut_locked(struct tree *t, bool wanted);
/* Lists all processes that ever were and are not alive. */
void tree_dead_locked(const struct tree *t, struct tree_dead *d);
/* silent: nodes that have not answered, and whose pages have copies elsewhere: a set. */
void tree_cut_locked(struct tree *t, const struct tree_dead *d, uint64_t silent);
/* This process executes another program, and no write of its own is under way; false: the execution
 * has failed. */
void tree_leaves(struct tree *t, bool leaves);
/* This process is about to end; still: none of its writes is under way any more.  True: all others
 * have ended or are about to.  False also if that cannot be found out within limit_ms. */
bool tree_leave(struct tree *t, bool still, unsigned limit_ms);
/* True: there is no other process, neither alive nor dead and not yet buried.  tree_alone() buries
 * all that can be, as long as that takes. */
bool tree_alone(struct tree *t);
bool tree_alone_locked(const struct tree *t);

/* --- slots held by several processes (tree_hold.c) --- */

/* For fork, while no vCPU of this process runs: the child comes to hold slots that this process
 * holds.  They are never written again.  -EINVAL: this process does not hold one of the slots;
 * -EEXIST: the child already holds it.  The slots before that one are shared. */
int tree_share(struct tree *t, uint32_t child, const uint64_t *slots, size_t n);
/* Releases shared slots; the last holder frees them.  -EINVAL: this process does not hold one of
 * the slots; the others are released. */
int tree_release(struct tree *t, const uint64_t *slots, size_t n);
/* Does this process hold the slot together with others? */
bool tree_shares(const struct tree *t, uint64_t slot);
/* How many slots of a chunk this process holds together with others. */
uint64_t tree_shared_in(const struct tree *t, uint32_t slab, uint32_t chunk);
/* Releases all slots of process p; adds to *freed how many became free.  p is dead, or is this
 * process with no vCPU running.  False: it is `until`, by now_ms(), and p holds more.  May be
 * repeated, also after another process stopped in the middle. */
bool tree_bury(struct tree *t, uint32_t p, int64_t until, uint64_t *freed);

#endif
