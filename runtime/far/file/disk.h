/*
 * file: far memory in a file or on a block device of this host, by io_uring past the page cache:
 * the interfaces between the parts of the driver.
 *
 *   driver.c   the driver: open and close, leases, the next program's inheritance
 *   claim.c    how a file or device becomes this process tree's alone, and whether its content may
 *              be overwritten
 *   data.c     transfers: commands for neighbouring pages, and their ends
 *   node.c     the node as a whole: poll(), its silence, writes that fail, its loss
 *   ring.c     io_uring
 *
 * The file begins with a page that says whose it is (claim.c); behind it page N of the node is at
 * (N + 1) * PAGE_SIZE.
 */
#ifndef VMRUN_FAR_DISK_H
#define VMRUN_FAR_DISK_H

#include <liburing.h>
#include <stdbool.h>
#include <sys/uio.h>
#include "far/node.h"

#define DISK_DEPTH      256     /* commands under way */
/* the most prefetches and writes of these, behind which a demand read may have to wait */
#define DISK_BACKGROUND 128
#define DISK_RUN        32      /* pages of neighbouring slots that are written by one command */
/* pages that are read ahead by one command: fewer, since the first page arrives with the last */
#define DISK_AHEAD      16
/* Pages of the node's own, if it hands back: memory beside --cache, made as it is used.  A demand
 * read always finds one. */
#define DISK_ROOM       1024
#define DISK_TICK_MS    250     /* how often time-outs are looked at; see disk_clock() */
/* between two looks at the clock; more than this is our own pause, not the disk's silence */
#define DISK_GAP_MS     500
/* Tick and gap of a node that hands back.  The tick is shorter, so that time is not lost. */
#define DISK_SOON_MS    40
#define DISK_STEP_MS    50
/* no transfer ends for this time, while some are under way: a node that hands back is down */
#define DISK_SILENT_MS  1000
#define DISK_PAUSE_MS   100     /* before a write that failed is sent again */
/* how long it is sent again, or half of --timeout if that is less; then another slot is used */
#define DISK_AGAIN_MS   1000

struct disk_node;

struct disk_command {
        /* the requests that it carries out, linked, by page; NULL: it is free, or was given up */
        struct far_request *r;
        enum far_op op;
        unsigned pages;
        /* Their frames, or the wanted part of one.  `own`: pages of the node's own, or that part of
         * one; the bytes that were read are copied from there. */
        struct iovec piece[DISK_RUN];
        bool own;
        bool given_up;                  /* its requests were handed back; the kernel still has it */
        int64_t since;                  /* disk_node.clock when it was posted */
        /* of a write that is to be sent again: -errno, and how many bytes were written; else 0 */
        int error;
        size_t good;
        struct disk_command *next;      /* while it is free */
};

struct disk_node {
        struct far_node *far;
        int fd;                         /* private; O_DIRECT */
        bool device;                    /* a block device, else a regular file */
        /* A file that was sparse when it became vmrun's: it may grow, and its blocks are given back
         * at the end. */
        bool sparse;
        bool created;                   /* by this process or one before it in the tree */
        /* The first page says that this is vmrun's.  Written under the lease lock. */
        bool marked;
        bool lost;                      /* by the thread that calls poll() */
        bool ring_made;
        struct io_uring ring;
        struct disk_command command[DISK_DEPTH], *free;
        unsigned used, background;      /* commands with requests; prefetches and writes of them */
        unsigned failed;                /* commands with an error */
        unsigned given_up;              /* commands */
        char *room;                     /* DISK_ROOM pages; NULL: reads go into the frames */
        char *spare[DISK_ROOM];         /* pages of it that no command has */
        unsigned spares;
        int64_t clock, looked;          /* ms, see disk_clock(); now_ms() at its last look */
        int64_t judged;                 /* by that clock: the last look at time-outs */
        int64_t heard;                  /* when a command was over last, or the first was posted */
        int64_t failing;                /* ms for which writes have failed and none has succeeded */
};

/* The node hands back, and is down.  Relaxed: by the I/O side; for other threads a hint. */
static inline bool disk_is_down(const struct far_node *n)
{
        return n->hands_back && !atomic_load_explicit(&n->up, memory_order_relaxed);
}

/* --- the claim to the file (claim.c).  0, or -errno with why --- */

/* Opens the file or device and locks it for this process tree; sets fd, device, sparse, created and
 * *bytes.  A missing file is made, an empty or sparse one enlarged, to the node's option size. */
int disk_claim(struct disk_node *d, const char *path, uint64_t *bytes, char why[FAR_WHY]);
/* Writes the first page.  0 or -errno. */
int disk_mark(struct disk_node *d);
/* No process of the tree needs the file any more: gives its blocks back to the file system, as far
 * as they were not allocated before. */
void disk_give_back(struct disk_node *d, const char *path);

/* --- transfers (data.c) --- */

/* Nothing is under way. */
void disk_reset(struct disk_node *d);
/* Makes room for reads of a node that hands back; and lets it go.  The kernel may still be reading
 * into it: then its pages are the kernel's alone.  0 or -errno. */
int disk_room_make(struct disk_node *d);
void disk_room_drop(struct disk_node *d);
/* Ends a write that failed: its pages that were not written get the error. */
void disk_write_failed(struct disk_node *d, struct disk_command *c);
/* Takes the requests of all commands, and returns them, linked.  If the node hands back, no command
 * reads into a frame any more. */
struct far_request *disk_give_up(struct disk_node *d);
/* far_driver.post */
unsigned disk_post(struct far_node *n, struct far_request **r, unsigned count);
/* Gives back requests that the kernel has carried out; returns how many. */
unsigned disk_take(struct disk_node *d);

/* --- the node (node.c) --- */

/* far_driver.poll and .arm */
unsigned disk_poll(struct far_node *n);
int disk_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms);

/* --- io_uring (ring.c) --- */

/* Can a ring be made here?  0, or -errno with why. */
int disk_ring_try(char why[FAR_WHY]);
int disk_ring_make(struct disk_node *d, char why[FAR_WHY]);
/* Also in a forked child, where the ring is the parent's. */
void disk_ring_drop(struct disk_node *d);
/* Queues a command.  The ring has room for all there are. */
void disk_ring_queue(struct disk_node *d, struct disk_command *c);
/* Gives the kernel the queued commands; those that it does not take now stay queued. */
void disk_ring_submit(struct disk_node *d);
bool disk_ring_pending(const struct disk_node *d);      /* is a command queued? */
/* Calls over() for all commands that the kernel has carried out; returns the sum of its results.
 * result: bytes, or -errno. */
unsigned disk_ring_reap(struct disk_node *d,
                        unsigned (*over)(struct disk_node *d, struct disk_command *c, int result));

#endif
