/*
 * The file in which leases outlive memnode (--resume).  At an orderly end the leases that are still
 * in use are written to it, with their pages.  The memnode that is started with the file next has
 * the leases again, so its clients find their pages, as after a break of their connections.
 * docs/protocol.md says why that is safe.  It rests on this:
 *
 * [R] At most one process serves a lease.  The file is written after all connections have ended,
 *     and removed, for good, before the first one is admitted.  So its pages are never older than
 *     what a client was answered.
 *
 * A lease over NBD is one piece of memory; over RDMA all that a client has is one lease here, and
 * each of its slabs is a piece.
 *
 * In the file: a head; the runs of pages that are not all zero, of one piece after the other; then
 * for each lease a struct resume_words, its pieces, its members, the ranges of members that were
 * cut, and where its runs belong.  All has sums, CRC32C.  Numbers are as this host has them: memory
 * stays where it is.
 *
 * Functions return 0 or -errno with a sentence in why that begins with the cause and ends with the
 * cure.  Main thread only.
 */
#ifndef MEMNODE_RESUME_H
#define MEMNODE_RESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "memnode/members.h"

enum resume_kind { RESUME_NBD = 1, RESUME_RDMA };
#define RESUME_DIGITS   32
#define RESUME_NAME     64
#define RESUME_PARTY    72
struct resume_piece {
        uint64_t slab;                  /* its number; NBD: 0 */
        uint64_t size;                  /* bytes, whole pages */
        char *base;                     /* in the pool */
};
struct resume_lease {
        enum resume_kind kind;
        char digits[RESUME_DIGITS];     /* the secret */
        uint64_t incarnation;           /* RDMA: the client's id */
        char name[RESUME_NAME];         /* RDMA: of the client, for the log; else empty */
        char party[RESUME_PARTY];       /* for whom it counts (party_name()); empty: for nobody */
        uint64_t last_slab;             /* RDMA: the highest number of a slab that it ever had */
        uint32_t restarts;              /* RDMA: of memnode, that it has outlived */
        uint32_t npieces;               /* NBD: 1 */
        struct resume_piece *piece;
        struct members members;
};

/* Leases that are to be written.  All zero: none.  lost: there are some that cannot be. */
struct resume_list { struct resume_lease *lease; unsigned count, room; bool lost; };
/* Adds one, with `n` pieces in place of its own.  0 or -ENOMEM. */
int resume_add(struct resume_list *list, const struct resume_lease *l,
               const struct resume_piece *piece, uint32_t n);
/* Its members and memory stay. */
void resume_list_free(struct resume_list *list);

/* From here on this memnode alone uses the file, until the process ends. */
int resume_lock(const char *path, char *why, size_t n);
/* The file is there no more, also if this host loses power now. */
int resume_remove(const char *path, char *why, size_t n);

/* ---- The bytes ---- */

#define RESUME_MAGIC    0x657361656c6d656dull   /* "memlease" */
#define RESUME_VERSION  3u
#define RESUME_LEASES   1024u                   /* of one file, at most */
#define RESUME_PIECES   4096u                   /* of a lease */
#define RESUME_PAGE     4096u
#define RESUME_RUN      (64u << 20)             /* bytes of a run, at most */

struct resume_head {
        uint64_t magic;
        uint32_t version, leases;
        uint64_t words_at, words_bytes;         /* the words about leases end the file */
        uint32_t words_sum;
        uint32_t sum;                           /* of the fields above */
};
struct resume_words {
        char digits[RESUME_DIGITS];
        char name[RESUME_NAME];                 /* ends with a zero, and zeros follow */
        char party[RESUME_PARTY];               /* so, too */
        uint64_t incarnation, last_slab, runs;
        uint32_t kind, restarts;
        uint32_t pieces, members, cut, pad;     /* 0 */
};
struct resume_part { uint64_t slab, size; };    /* a piece */
struct resume_member {
        uint64_t number;
        uint32_t generation[MEMBER_LINKS];
        uint32_t awaited, pad;                  /* 0 or 1; 0 */
};
struct resume_run {
        uint64_t first, bytes;                  /* of the piece */
        uint32_t sum, piece;                    /* of its bytes; which piece */
};
_Static_assert(sizeof(struct resume_head) == 40 && sizeof(struct resume_words) == 216 &&
                       sizeof(struct resume_part) == 16 && sizeof(struct resume_member) == 32 &&
                       sizeof(struct resume_run) == 24 &&
                       sizeof(struct members_range) == 16,
               "as they are in the file, without gaps");

/* What became of names in the file's folder is on its disk.  0 or -errno. */
int resume_sync_folder(void);
/* The name of a file beside it, which the caller frees; NULL: no memory is left. */
char *resume_beside(const char *path, const char *suffix);
#define RESUME_NEW ".new"                       /* while it is written */
/* CRC32C of n bytes, begun with the sum of those before them. */
uint32_t resume_sum(uint32_t begun, const void *bytes, size_t n);

#endif
