/*
 * file: far memory in a file or on a block device of this host, by io_uring past the page cache:
 * the interfaces between the parts of the driver.
 *
 *   driver.c   the driver: open and close, leases, what the next program inherits
 *   claim.c    how a file or device becomes this process tree's alone, and what may be overwritten
 *   data.c     transfers: commands for neighbouring pages, their ends, what failed
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
#include "far/far.h"

#define DISK_DEPTH      256     /* commands under way */
/* at most so many of them are prefetches and writes: what a demand read may have to wait behind */
#define DISK_BACKGROUND 128
#define DISK_RUN        32      /* pages of neighbouring slots that are written by one command */
/* and that are read ahead by one: fewer, since the first page arrives with the last */
#define DISK_AHEAD      16
#define DISK_TICK_MS    250     /* how often time-outs are looked at */
#define DISK_PAUSE_MS   100     /* before a write that failed is sent again */

struct disk_node;

struct disk_command {
        struct far_request *r;          /* what it moves, linked, by page; NULL: it is free */
        unsigned pages;
        struct iovec piece[DISK_RUN];   /* their frames, or the wanted part of one */
        int64_t since;                  /* now_ms() when it was posted */
        int error;                      /* of a write that is to be sent again, -errno; else 0 */
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
        unsigned used, background;      /* commands that are not free; prefetches and writes */
        unsigned failed;                /* commands with an error */
        int64_t judged;                 /* now_ms() of the last look at time-outs */
};

/* --- whose it is (claim.c).  0, or -errno with why --- */

/* Opens the file or device and locks it for this process tree; sets fd, device, sparse, created and
 * *bytes.  A missing file is made, an empty or sparse one enlarged, to the node's option size. */
int disk_claim(struct disk_node *d, const char *path, uint64_t *bytes, char why[FAR_WHY]);
/* Writes the first page.  0 or -errno. */
int disk_mark(struct disk_node *d);
/* No process of the tree needs it any more: gives its blocks back to the file system, as far as
 * they were not allocated before. */
void disk_give_back(struct disk_node *d, const char *path);

/* --- transfers (data.c) --- */

/* Nothing is under way. */
void disk_reset(struct disk_node *d);
/* far_driver.post, .poll and .arm */
unsigned disk_post(struct far_node *n, struct far_request **r, unsigned count);
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
/* Gives the kernel what is queued; what it does not take now stays queued. */
void disk_ring_submit(struct disk_node *d);
bool disk_ring_pending(const struct disk_node *d);      /* is something queued? */
/* Calls over() for all that the kernel has carried out; returns the sum of its results.  result:
 * bytes, or -errno. */
unsigned disk_ring_reap(struct disk_node *d,
                        unsigned (*over)(struct disk_node *d, struct disk_command *c, int result));

#endif
