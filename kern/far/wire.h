/*
 * A wire by the clock: the time at which a page would have come over a network of a certain latency
 * and bandwidth, and the pages that are on their way.
 *
 * Pure logic: the caller reads the clock, which may be any that does not run back, and moves the
 * pages.  Each direction of a wire carries one page at a time, in the order asked for:
 *
 *   begun = the time it was asked, or when the page before it has left, whichever is later
 *   due   = begun + ticks a page + latency
 */
#ifndef VMRUN_WIRE_H
#define VMRUN_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "abi_slab.h"
#include "layout.h"
#include "pager/frame.h"

/* latency: ticks.  page: ticks a page, in units of 2^-SLAB_TICK_SHIFT. */
struct wire_rate { uint64_t latency, page; };
/* One direction: when the last page has left, in ticks and a part of one. */
struct wire_link { uint64_t free, part; };

/* Asks for a number of bytes.  Returns when they are due. */
static inline uint64_t wire_send_bytes(struct wire_link *l, const struct wire_rate *r,
                                       uint64_t bytes, uint64_t now, uint64_t *begun)
{
        if (now > l->free)
                *l = (struct wire_link){ .free = now };
        *begun = l->free;
        l->part += r->page * bytes >> PAGE_SHIFT;
        l->free += l->part >> SLAB_TICK_SHIFT;
        l->part &= (1u << SLAB_TICK_SHIFT) - 1;
        return l->free + r->latency;
}

/* wire_send_bytes() for a page. */
static inline uint64_t wire_send(struct wire_link *l, const struct wire_rate *r, uint64_t now,
                                 uint64_t *begun)
{
        return wire_send_bytes(l, r, PAGE_SIZE, now, begun);
}

struct card;

/* A page that is read. */
struct wire_page {
        uint64_t due;
        const void *slot;               /* its memory */
        struct card *card;              /* that was asked for it, as its request `at`; or NULL */
        uint32_t at;
        frame_t frame;
        uint16_t vcpu;                  /* the vCPU that asked for it */
        uint8_t op;                     /* enum io_op */
        /* Of a sampled read: the TSC when it was asked for, and the ticks that it then waited for
         * the pages before it. */
        uint64_t asked, queued;
        uint32_t next;                  /* in its list: index + 1 */
};

/* Pages under way at one time: a vCPU that asks for more has to wait. */
#define WIRE_PAGES 1024

struct wire_list { uint32_t head, tail; };      /* index + 1; 0: empty */

/* Zeroed memory is the initial state. */
struct wires {
        _Atomic uint32_t lock;          /* guards all but next and copied */
        /* When the first page is due; 0: none is under way.  Read without the lock as a hint. */
        _Atomic uint64_t next;
        /* Ticks for which the clock stood; written under the lock. */
        _Atomic uint64_t copied;
        uint32_t count;                 /* nodes up to the last node that has a wire */
        struct {
                struct wire_rate rate;
                /* out: for the vCPU that writes, without the lock */
                struct wire_link in, out;
                struct wire_list asked;
        } node[SLAB_NODES];
        struct wire_list unused;
        uint32_t fresh;                 /* pages [fresh, WIRE_PAGES) were never used */
        struct wire_page page[WIRE_PAGES];
};

/* The lock is held for one page's copy at most. */
void wire_lock(struct wires *w);
bool wire_try_lock(struct wires *w);
void wire_unlock(struct wires *w);

/* The rest is called with the lock held. */

/* The wire of a node; repeated for each of its slabs. */
void wire_add(struct wires *w, unsigned node, const struct wire_rate *r);
/* Puts page on its way; fills in due and, if asked is set, queued.  False: too many are under
 * way. */
bool wire_ask(struct wires *w, unsigned node, const struct wire_page *page, uint64_t now);
/* A page that is due, and no longer under way.  False: there is none. */
bool wire_take(struct wires *w, uint64_t now, struct wire_page *page);
/* When is the page for this frame due?  False: it is not under way. */
bool wire_find(const struct wires *w, frame_t frame, uint64_t *due);

#endif
