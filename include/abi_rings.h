/*
 * Rings of far memory: requests of a vCPU to the nodes behind SLAB_REMOTE slabs.  They are the
 * guest's NIC: the I/O thread of the host (runtime/far/io.c) takes entries off and moves the data.
 *
 * A read is over when the host has made the BUSY entry PRESENT (kern/pager/frame.h, page_fetched).
 * A write is over when `state` says so; the service vCPU keeps the frame claimed until it has seen
 * that.
 *
 * tail is written by the vCPU (release: the entry is complete), head by the host (release: the
 * entry was copied and may be reused; the entry of a write only after its state says so too).
 * Both only grow, modulo 2^32.
 */
#ifndef VMRUN_ABI_RINGS_H
#define VMRUN_ABI_RINGS_H

#include <stdint.h>
#include "layout.h"

/* MARKER: a prefetch whose page becomes HELD, so that its first use is a fault. */
/* IO_PART, on the ring of demand reads: bytes of a page, to their offset in the page `frame`, which
 * is the vCPU's bounce page (bounce_pages).  Where pages have sums, the host reads and verifies the
 * pieces that hold the bytes, or the whole page.  IO_PART_RAW: the host reads only the bytes, and
 * verifies nothing.  No page table entry names the bounce page, so `state` says when the read is
 * over. */
/* IO_PROMOTE, on the ring of demand reads: a vCPU waits for the page that a prefetch into this
 * frame brings.  A hint, to which the host answers nothing. */
enum io_op { IO_READ, IO_PREFETCH, IO_WRITE, IO_MARKER, IO_PART, IO_PART_RAW, IO_PROMOTE };
/* AWAITED: the vCPU sleeps on this word, and the host wakes it.  LOST, of a part: two reads of the
 * page gave wrong content; of a write: no node has the page, and its slot stays DUE for good, so
 * the page goes to another slot. */
enum io_state { IO_ASKED, IO_AWAITED, IO_OVER, IO_LOST };
struct io_entry {
        /* enum io_state.  Of writes and parts only: their entry is not reused before the request is
         * over. */
        _Atomic uint32_t state;
        uint32_t op, frame;
        /* Of a part: bytes, within the page.  Of IO_READ: 0; or kern asked a node itself
         * (abi_direct.h), and the page did not come: the number of the vCPU that asked, + 1; and 0,
         * or, if it came and was wrong, the place that it is of, + 1. */
        uint16_t offset, len;
        uint64_t slot;
        /* Of a sampled read, and of a write with statistics: the vCPU's TSC when it asked; else
         * 0. */
        uint64_t asked;
};
#define IO_RING 128
struct io_ring {
        _Atomic uint32_t tail __attribute__((aligned(64)));
        _Atomic uint32_t head __attribute__((aligned(64)));
        struct io_entry entry[IO_RING] __attribute__((aligned(64)));
};
/* A ring a kind, so that a read for which the program waits is never queued behind anything else,
 * and prefetches do not wait for writes. */
struct io_rings {
        struct io_ring demand, bulk, prefetch;
        /* The demand read that was under way has failed: set by the host before it ends the fetch,
         * cleared by the vCPU, which still owns the frame. */
        _Atomic uint32_t read_failed __attribute__((aligned(64)));
        /* How many entries of the ring of prefetches are over: counted by the host, after their
         * entries have changed; a hint for the vCPU. */
        _Atomic uint32_t prefetches_over;
        /* The I/O side looks at these rings in each turn.  Written by the I/O side alone; while it
         * is 0, a vCPU says that it has moved a tail (control.io_news). */
        _Atomic uint32_t polled;
};

static inline struct io_rings *vcpu_rings(unsigned n)
{
        return (struct io_rings *)(WINDOW + RINGS_OFF + (uint64_t)n * RINGS_SIZE);
}

_Static_assert(sizeof(struct io_rings) <= RINGS_SIZE, "a vCPU's rings fit their room");
_Static_assert(RINGS_OFF + (uint64_t)VCPUS_MAX * RINGS_SIZE <= RAM_PD_OFF,
               "the rings fit below the page tables");
_Static_assert(RAM_PD_OFF + (WINDOW_END - WINDOW) / 0x40000000 * PAGE_SIZE <= POOL_OFF,
               "so do directories of the whole window");

#endif
