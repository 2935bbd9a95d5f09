/*
 * The allocator of a process tree, the host's part: the memory file that all vmrun processes of a
 * tree have open, which processes are alive, and slots that several of them hold.  include/tree.h
 * has the part that kern sees; docs/architecture.md the protocol.
 *
 * Functions return 0 or -errno.  Those that end in _locked are called between tree_lock() and
 * tree_unlock().
 */
#ifndef VMRUN_FAR_TREE_H
#define VMRUN_FAR_TREE_H

#include <pthread.h>
#include <stddef.h>
#include "base/options.h"
#include "include/tree.h"

/* A slab as every process of the tree knows it. */
struct tree_slab {
        uint32_t kind, pages, node, pad;
        /* its first page, as the node counts what was leased from it */
        uint64_t first;
        uint64_t word[3];               /* as in struct far_place */
};
/* What a node has given so far; the same as in struct far_node. */
struct tree_node {
        uint64_t pages, leased;
        uint32_t slabs, slab_most;
};
/* A process number.  The process holds a lock on the byte of the file with this number as long as
 * it lives. */
struct tree_record {
        enum { RECORD_FREE, RECORD_USED, RECORD_DEAD } state;
        int32_t pid;                    /* for people; 0: not up yet */
        /* it has said that it ends; and that no write of its own is under way */
        enum { LEAVE_NOT, LEAVE_SOON, LEAVE_STILL } leaving;
        /* RECORD_DEAD: when that was noticed; ms, CLOCK_MONOTONIC */
        int64_t died;
        uint64_t birth;                 /* no two uses of a number have the same */
};

/* The first part of the file. */
struct tree_head {
        uint64_t magic;
        uint32_t version;               /* ABI_VERSION, and with it the size of everything */
        uint32_t nnodes;
        /* robust; guards all that follows.  Its owner may die: tree_lock() mends what it left */
        pthread_mutex_t lock;
        uint32_t max_slabs;             /* what the file has room for; does not change */
        uint32_t nslabs;                /* slab entries below it do not change any more */
        uint64_t births;
        struct tree_node node[NODES_MAX];
        struct tree_record record[TREE_PROCESSES];
        struct tree_slab slab[SLABS_MAX];
};

/* The file: head, units (include/tree.h), then the holder bits: of each slab, of each process, a
 * bit a slot.  Its length follows from the number of slabs, since limits of file size and of
 * address space (ulimit -f, -v) count what is not there, too. */
#define TREE_HEAD_SIZE (1ull << 20)
#define SLAB_BITS_SIZE ((uint64_t)TREE_PROCESSES * SLAB_PAGES / 8)
_Static_assert(sizeof(struct tree_head) <= TREE_HEAD_SIZE, "struct tree_head fits its room");
static inline uint64_t tree_units_size(uint32_t slabs)
{
        return (1 + (uint64_t)slabs) * SLAB_MAP_SIZE;
}
static inline uint64_t tree_size(uint32_t slabs)
{
        return TREE_HEAD_SIZE + tree_units_size(slabs) + slabs * SLAB_BITS_SIZE;
}

/* A process's view. */
struct tree {
        int fd;                         /* private */
        uint32_t self;                  /* this process's number, once it has one */
        struct tree_head *head;
        char *units;
        _Atomic uint64_t *bits;
        uint32_t max_slabs;
        /* numbers kept alive by this process: its own, and those of children not up yet */
        uint64_t keeping[TREE_PROCESSES / 64];
        /* how long a write of a dead process may still be under way to a node */
        int64_t linger_ms;
};

/* --- tree.c --- */

/* Makes the file, for the first process of a tree and at most so many slabs, and maps it; units:
 * where struct tree_common shall be, NULL: anywhere.  linger_ms: see tree_mend_locked(). */
int tree_make(struct tree *t, uint32_t max_slabs, void *units, int64_t linger_ms, char *why,
              size_t n);
/* Maps a file inherited by exec, whose private descriptor becomes t's; refuses any other file.  A
 * forked process has all mapped. */
int tree_attach(struct tree *t, int fd, void *units, int64_t linger_ms, char *why, size_t n);
void tree_close(struct tree *t);

/* Waits as long as another process takes to lease a slab.  One that dies meanwhile is noticed. */
void tree_lock(struct tree *t);
void tree_unlock(struct tree *t);

/* Gives this process a number.  -EAGAIN: all are in use. */
int tree_join(struct tree *t);
/* Before fork: a number for the child, kept alive by this process.  -EAGAIN: all are in use. */
struct tree_child { uint32_t number; uint64_t birth; };
int tree_child(struct tree *t, struct tree_child *c);
/* In the child, as its first act: it is that number from now on, and keeps itself alive.  -ESRCH:
 * the parent died so early that what it shared is gone; nothing can be read any more. */
int tree_be_child(struct tree *t, const struct tree_child *c);
/* In the parent: the child is up, or never will be; its life is its own affair. */
void tree_child_left(struct tree *t, const struct tree_child *c);

/* Frees what dead processes held; returns how many slots became free.  Where a slab is remote, a
 * dead process is left alone for linger_ms, unless it said that none is: its last writes may still
 * be on their way to slots of its own. */
uint64_t tree_mend_locked(struct tree *t);
/* This process is about to end; still: no write of its own is under way any more.  True: all others
 * are gone or about to, too, as far as can be found out within limit_ms. */
bool tree_leave(struct tree *t, bool still, unsigned limit_ms);
/* Is there any other process, alive or not mended yet? */
bool tree_alone_locked(const struct tree *t);

/* --- slots held by several processes (tree_hold.c) --- */

/* For fork, while nothing of this process runs: the child holds these slots too, which this process
 * holds and which nobody writes any more.  -EINVAL: one of them is not this process's, -EEXIST: the
 * child has it already; those before it are shared. */
int tree_share(struct tree *t, uint32_t child, const uint64_t *slots, size_t n);
/* Lets go of shared slots; the last holder frees them.  -EINVAL: this process does not hold one of
 * them; the others are done. */
int tree_release(struct tree *t, const uint64_t *slots, size_t n);
/* Lets go of all that process p holds, which is dead, or this one with nothing of it running.  May
 * be begun anew where somebody else stopped in the middle.  Returns how many slots became free. */
uint64_t tree_bury(struct tree *t, uint32_t p);

#endif
