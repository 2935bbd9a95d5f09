/*
 * The I/O side of vmrun for one node, without vmrun: what a program needs to drive a driver by its
 * contract (far/node.h).  It leases slabs, makes requests, posts them as request.c does, sleeps as
 * the I/O thread does, and has far_done() and the other functions that drivers call.
 *
 * A page has a number, which is its place in the leased slabs, and a version: how often it was
 * written.  Each 8 bytes of a page tell number, version and place, so a stale, torn or shifted page
 * shows.  As in the guest, a page has one transfer at a time.  A frame belongs to one job, and is
 * idle or has one transfer.
 *
 * If the node hands back, a request that was handed back waits, its frame full of a pattern, so a
 * late transfer shows.  It is started again when the node is up.
 *
 * Slabs of kind SLAB_MEMORY have no post(): the harness copies, as kern does.
 */
#ifndef TEST_DRIVERS_HARNESS_H
#define TEST_DRIVERS_HARNESS_H

#include "base/options.h"
#include "far/node.h"

#define HARNESS_SLABS 256u

struct harness_job {
        struct far_request r;           /* first: far_done() gets its address */
        uint64_t page;
        bool under_way;                 /* the driver has it, or may have it within post() */
        uint64_t posted_ns;             /* now_ns() */
        int64_t handed_ms;              /* now_ms() when it was handed back; 0: it was not */
        struct harness_job *next;       /* while it is idle */
};

struct harness {
        /* --- By the program. --- */
        bool hands_back;                /* other nodes have the same pages */
        bool errors;                    /* transfers may end with far_request.error */
        bool zeroed;                    /* a page that was never written reads as zeros */
        uint64_t seed;                  /* of harness_random(); not 0 */
        /* The driver must wake a sleeper, or say in arm() when it must be polled, within this time
         * in ms, also if no request is under way.  0: it may be polled each second. */
        unsigned patience_ms;
        /* A transfer has ended by far_done().  NULL: the program need not know. */
        void (*on_done)(const struct harness_job *j);
        /* The node is lost, and the driver keeps nothing.  NULL: the program looks itself. */
        void (*on_lost)(struct far_node *n);

        /* --- By the harness; for the program to read. --- */
        struct far_node *node;
        uint64_t pages;                 /* leased, in all slabs */
        char *frames;
        unsigned depth;                 /* how many frames */
        unsigned in_flight;             /* requests that the driver has */
        unsigned most_in_flight;        /* or were posted, so that it might have had them */
        unsigned waiting;               /* handed back, not started again yet */
        /* Since harness_start(): calls of far_done(); of these, with an error: reads, writes; calls
         * of far_failed(); of far_down(). */
        uint64_t done, bad_reads, bad_writes;
        uint64_t given_back;
        unsigned downs;
        int64_t slowest_ms;             /* from a transfer's end to far_down() */
};
extern struct harness harness;

/* The driver, or the harness's caller, is wrong: the case fails.  By the program. */
_Noreturn void harness_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

uint64_t now_ns(void);
unsigned harness_random(unsigned below);

/* Makes `depth` frames, and room for most_pages pages, once. */
void harness_init(unsigned depth, uint64_t most_pages);
void harness_end(void);

/* Attaches an opened node, which must be up then, and leases `pages` of it in slabs of slab_pages.
 * No page is written. */
void harness_start(struct far_node *n, uint64_t pages, uint32_t slab_pages);
/* The parts of harness_start(), for a node that is down after attach(): before attach(), and
 * when it is up.  harness_lease() also leases more for a node that was started; what was leased
 * before must end with a whole slab. */
void harness_prepare(struct far_node *n, uint32_t slab_pages);
void harness_lease(uint64_t pages);
/* Attaches an opened node that continues the harness's node, in another process of the tree or the
 * next program, and makes its slabs usable. */
void harness_continue(struct far_node *n);
/* Another process of the tree has written these pages, each once. */
void harness_written_elsewhere(uint64_t first, uint64_t count);

/* The place of a slab, for calls of the driver's own functions. */
struct far_place harness_place(unsigned slab);
bool harness_has_idle(void);            /* is there an idle frame? */
bool harness_is_busy(uint64_t page);    /* has the page a transfer? */
bool harness_can_read(uint64_t page);   /* is it known what a read of it must find? */
/* A request for a page that is not busy, in an idle frame.  The caller may set offset and len of a
 * FAR_READ, and must post it. */
struct far_request *harness_request(enum far_op op, uint64_t page);
/* Posts all of them, and waits whenever the driver has no room. */
void harness_post(struct far_request **r, unsigned count);
/* Posts what there is room for, and drops the others as if they had not been made.  Returns how
 * many the driver took. */
unsigned harness_offer(struct far_request **r, unsigned count);

/* poll(), and its contract.  Returns how many transfers ended. */
unsigned harness_poll(void);
/* As the I/O thread: sleeps until the driver has news, or for ms; then harness_poll(). */
void harness_sleep(int ms);
/* Polls a few times, and sleeps then. */
void harness_wait(void);
/* Until no request is under way or waits, or the node is lost. */
void harness_settle(void);
/* One transfer for each of the pages, many at a time, until all have ended. */
void harness_move(enum far_op op, uint64_t first, uint64_t count);

#endif
