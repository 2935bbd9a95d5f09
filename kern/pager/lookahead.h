/*
 * Prefetch policies: which pages to ask for before the program needs them.
 *
 * Pure logic.  A policy sees the faults of one vCPU and names pages.  The caller takes the remote
 * ones of these pages, and may take fewer.  A prefetched page is mapped when it arrives, so using
 * it makes no fault: a policy learns of hits by asking, at a later fault, whether pages were used.
 *
 * Page numbers are those of the program's addresses, below 2^LOOKAHEAD_PAGE_BITS.
 */
#ifndef VMRUN_LOOKAHEAD_H
#define VMRUN_LOOKAHEAD_H

#include <stdbool.h>
#include <stdint.h>

enum lookahead_policy {
        LOOKAHEAD_NONE,
        LOOKAHEAD_READAHEAD,            /* Linux's swap readahead for a VMA */
        LOOKAHEAD_TREND,                /* Leap's majority trend */
        LOOKAHEAD_AUTO,                 /* streams, each with a stride and a window of its own */
        LOOKAHEAD_POINTERS,             /* AUTO, and the pages that a page points to (pointers.h) */
};

/* Does this policy follow streams, with a window that depends on their use? */
static inline bool lookahead_has_streams(uint32_t policy)
{
        return policy == LOOKAHEAD_AUTO || policy == LOOKAHEAD_POINTERS;
}

#define LOOKAHEAD_PAGE_BITS   36
#define LOOKAHEAD_MOST        64        /* pages a batch, at most */
#define LOOKAHEAD_HISTORY     64        /* accesses that `trend` can look back on */
#define LOOKAHEAD_STREAMS     8
#define LOOKAHEAD_BATCHES     4         /* whose hits `readahead` and `trend` count */
#define LOOKAHEAD_NO_MARKER   UINT32_MAX

/* The setting.  It may change between two faults. */
struct lookahead_rule {
        uint32_t policy;                /* enum lookahead_policy */
        uint32_t window;                /* pages a batch, at most; above LOOKAHEAD_MOST: that */
        uint32_t history;               /* `trend`: accesses; above LOOKAHEAD_HISTORY: that */
        /* `auto`: once a stream has used this many pages, the program will hardly use its pages
         * again. */
        uint32_t forget;
};

enum lookahead_cause {
        LOOKAHEAD_MISS,                 /* the page was not prefetched, or is gone again */
        LOOKAHEAD_LATE,                 /* it was asked for and is still under way */
        LOOKAHEAD_MARKER,               /* it is a marker: a fault without I/O */
};

/* OUT: the pages first, first + stride, ... */
struct lookahead_batch {
        uint64_t first;
        int64_t stride;
        uint32_t count;                 /* 0: none */
        uint32_t marker;                /* index of the page to mark, or LOOKAHEAD_NO_MARKER */
        /* Pages that the program has passed and will hardly use again: passed, passed + stride,
         * ... */
        uint64_t passed;
        uint32_t npassed;
};

/* The fate of a page that may have been prefetched. */
enum lookahead_use {
        LOOKAHEAD_HIDDEN = -1,          /* prefetched; whether it was used cannot be known */
        LOOKAHEAD_UNUSED,               /* prefetched and not used, or remote (again) */
        LOOKAHEAD_USED,                 /* prefetched and used */
        LOOKAHEAD_OTHER,                /* here without a prefetch, or its use was told before */
};
typedef enum lookahead_use lookahead_used_fn(void *arg, uint64_t page);

/* A sequence of accesses with one stride (`auto`). */
struct lookahead_stream {
        uint64_t last;                  /* the page of its latest fault */
        int64_t stride;                 /* 0: this entry is free */
        uint64_t time;                  /* of the latest fault, in faults of the vCPU */
        uint32_t ahead;                 /* pages asked for beyond last */
        uint32_t newest;                /* pages of the latest batch */
        uint32_t good, bad;             /* pages used and not used since the window was set */
        uint32_t used, unused;          /* pages used and not used since the stream began */
        uint64_t left;                  /* pages that it may still ask for */
        uint32_t steps;                 /* how far the stream has gone, in pages */
        /* missed: misses between the stream's pages since its latest fault.  finer: the stride that
         * they speak for. */
        uint32_t missed;
        uint64_t finer;
        uint16_t window;                /* pages of the next batch; 0: closed */
        uint16_t closed;                /* faults since it was closed */
        bool judged;                    /* judge() has counted it in the vCPU's doubt */
        bool counted;                   /* count_length() has counted its length */
        bool marked;                    /* its latest batch has a marker, not touched yet */
};

/* An access that no stream predicted.  Zero: none. */
struct lookahead_lone {
        uint64_t page1;                 /* its page + 1 */
        int64_t stride;                 /* distance from its neighbour */
        uint32_t agreed;                /* accesses that agreed with the stride */
};

/* A batch of `readahead` or `trend` whose hits are being counted. */
struct lookahead_asked {
        uint64_t first;
        int64_t stride;
        uint64_t waiting;               /* a bit a page: not used yet */
};

/* The record of one vCPU's accesses.  Zeroed memory is the initial state. */
struct lookahead {
        /* auto.  A stream predicts the len pages from low on, or some of them.  Apart from the
         * other fields, since a fault looks at all streams. */
        uint64_t low[LOOKAHEAD_STREAMS], len[LOOKAHEAD_STREAMS];
        struct lookahead_stream stream[LOOKAHEAD_STREAMS];
        struct lookahead_lone lone[LOOKAHEAD_STREAMS];
        uint64_t time;                  /* faults */
        uint32_t recent;                /* the stream that predicted a fault last */
        uint32_t next_lone;
        uint32_t doubt;                 /* accesses that must agree beyond the usual two */
        uint32_t usual;                 /* pages of streams that ended lately; 0: not known */
        /* readahead, trend */
        struct lookahead_asked asked[LOOKAHEAD_BATCHES];        /* the oldest first */
        uint64_t last1;                 /* page of the latest access + 1; 0: none yet */
        uint32_t hits;                  /* since the latest miss */
        uint32_t window;                /* pages of the latest batch */
        /* trend */
        int64_t delta[LOOKAHEAD_HISTORY];       /* between accesses: a ring */
        int64_t trend;                  /* the latest trend found; 0: none yet */
        uint32_t ndelta;                /* ever entered; counts on from twice the ring's size */
};
_Static_assert(sizeof(struct lookahead) <= 2048, "the record of a vCPU's accesses is bounded");

/* A fault at page.  used(arg, page) tells the fate of other pages.  OUT *batch: the pages to
 * prefetch, all within bounds. */
void lookahead_fault(struct lookahead *h, const struct lookahead_rule *rule, uint64_t page,
                     enum lookahead_cause cause, lookahead_used_fn *used, void *arg,
                     struct lookahead_batch *batch);

/* The program says that it is about to use count pages from page on, in steps of stride (not 0).
 * OUT *batch: the first window of them.  With `auto` these pages are a stream from now on, which
 * asks for no page beyond its last. */
void lookahead_stream(struct lookahead *h, const struct lookahead_rule *rule, uint64_t page,
                      int64_t stride, uint64_t count, lookahead_used_fn *used, void *arg,
                      struct lookahead_batch *batch);

/* The caller had room for the first n pages of the batch only: cuts the batch to these, and chooses
 * a new marker.  To be called before the next fault; rule as at the fault. */
void lookahead_cut(struct lookahead *h, const struct lookahead_rule *rule,
                   struct lookahead_batch *batch, uint32_t n);

#endif
