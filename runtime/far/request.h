/*
 * Requests of the guest, and the transfers that carry them out: request.c.  The I/O side (io.c)
 * calls these, one thread at a time.
 */
#ifndef VMRUN_FAR_REQUEST_H
#define VMRUN_FAR_REQUEST_H

#include <stdbool.h>
#include "abi_rings.h"
#include "far/node.h"
#include "far/sums.h"
#include "pager/frame.h"

/* Where the tree of this process keeps the sums of pieces. */
void request_pieces(struct slot_pieces *of_tree);
/* Takes an entry of vCPU number vcpu off its ring (abi_rings.h). */
void request_begin(struct io_entry *e, unsigned vcpu);
/* Kern asked the slab's node for a page by itself (abi_direct.h), and will not hear of it: the page
 * is read as if that vCPU had asked by its ring, in the next turn. */
void request_take_over(uint64_t slot, frame_t frame, unsigned vcpu);
unsigned request_taken_over(void);
/* Copies a slot's page from a place that has it to the places that lack it, through a frame that no
 * page has; then calls repair_done() or repair_unfit(). */
void request_repair(uint64_t slot, frame_t frame);
/* Reads the copy at place k, whose node answers, and compares its sum; then calls over().  The slot
 * need not be held. */
enum check { CHECK_RIGHT, CHECK_WRONG, CHECK_SILENT };
typedef void check_fn(frame_t frame, enum check found);
void request_check(uint64_t slot, unsigned k, frame_t frame, check_fn *over);
/* Is a write of this process under way? */
bool request_written(uint64_t slot);
/* The copies at these places are wrong, although they were written, and another copy is right: no
 * process reads them from here on. */
void request_spoiled(uint64_t slot, unsigned places);
/* The slot is no longer held (held_has()): begins the writes that waited for that. */
void request_go_on(uint64_t slot);
/* Gives drivers the transfers that they have room for, demand reads first.  Returns how many. */
unsigned request_post(void);
/* Hands all transfers back that were not posted to the node yet, as its driver would. */
void request_hand_back(const struct far_node *n);
/* No transfer of this process is under way at the node. */
bool request_is_idle(const struct far_node *n);
/* In a forked child: nothing is under way. */
void request_forked(void);

/* --- for outage.c, which carries on requests whose transfers nodes have handed back --- */

struct request {
        const struct far_slab *slab;
        struct io_entry *entry;         /* of a write or a part */
        uint64_t slot;
        frame_t frame;
        unsigned vcpu;                  /* whose ring it came from */
        /* Sets of places.  Of a write: where its copy is under way (waits), is there (good), may
         * still arrive, for ever (late).  Of a read: where the copy is wrong (bad). */
        unsigned waits, good, late, bad;
        /* Of a read that came wrong once: the place that it came from, + 1: read once more. */
        unsigned again;
        bool refused;                   /* a write that a node could not carry out */
        /* A prefetch, even if its op is FAR_READ by now (IO_PROMOTE); and the first use of its page
         * is to be a fault. */
        bool ahead, marker;
        /* Bytes for a vCPU's bounce page, which no page-table entry names; and they are not
         * compared with a sum. */
        bool part, raw;
        struct sum_of_part right;       /* of a part that is not raw and not the whole page */
        uint64_t taken;                 /* TSC when it came off its ring */
        /* For the parts of a fetch, of a sampled read: when its vCPU asked, by the guest's TSC, and
         * when it went to its driver; else 0. */
        uint64_t asked, sent;
        int64_t stranded;               /* since when, by patient_ms; 0: it is not */
        /* For repair.c, no vCPU waits: a copy is read, and written to places that lack the page. */
        bool repair;
        bool unfit;                     /* of a repair: no copy of the page fits its sum */
        check_fn *check;                /* for scrub.c: a copy is read for its sum alone; or NULL */
        struct request *before, *after; /* in `writes` */
        struct request *next;           /* in a list of struct requests */
        /* A read, or the copies of a write, by index of the place; .owner: this request. */
        struct far_request copy[];
};

/* All is written by the I/O side, but for the first field. */
extern struct requests {
        /* The tree's: where sums of pieces are kept.  Stored once by io_start(), before the I/O
         * side begins its work. */
        struct slot_pieces *pieces;
        struct request *unused;         /* for new_request() */
        /* Writes from begin_write() until they are over, by before and after: slots that must not
         * be repaired. */
        struct request *writes;
        struct request *behind;         /* writes that wait until their slot is repaired */
        /* Transfers that a node has handed back: for outage_step(). */
        struct far_request *failed;
        struct request *taken_over;     /* for request_taken_over() */

        struct request *stranded;       /* no node can carry them out now */
        /* There are stranded requests.  Relaxed: for other threads a hint (outage_waits()). */
        _Atomic bool waiting;
        /* Time in which this process ran and had stranded requests; counted by outage.c. */
        int64_t patient_ms;

        /* Transfers that are not posted yet, by node and far_op. */
        struct queue { struct far_request *head, **tail; } queue[NODES_MAX][3];
} requests;

/* Carries on a request without this transfer, which its node has handed back: a read is asked of
 * another place, a write misses this copy. */
void request_go_without(struct far_request *r);
/* Chooses places for a stranded request again, and strands it if there are none. */
void request_send(struct request *q);

static inline bool is_write(const struct request *q) { return q->copy[0].op == FAR_WRITE; }

#endif
