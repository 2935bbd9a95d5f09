/*
 * The cache of a guest: its frames, its free lists and the state of the CLOCK hand.  The pager
 * (pager.h) changes them; far/ and base/ read from them where a frame is.
 */
#ifndef VMRUN_CACHE_H
#define VMRUN_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "abi_vcpu.h"
#include "layout.h"
#include "pager/balance.h"
#include "pager/frame.h"
#include "pager/notices.h"

#define PASSED_FRAMES 1024
#define FREE_LISTS    8

/* A list of batches of free frames, which frames.c describes. */
struct free_list {
        _Alignas(CACHE_LINE) _Atomic uint64_t head;
};

/* By writer: what vCPUs write is on other lines than what each fault reads. */
struct pager {
        /* Written at the start, or seldom. */
        struct frame *frames;
        uint32_t nframes;
        bool blind;                     /* pages come with A=1, so A does not tell their use */
        uint64_t pfn0;                  /* guest-physical page number of frame 0 */
        /* The cleaner is woken below low and works up to high: pager_marks(), by the cleaner.
         * Other vCPUs read them as hints. */
        _Atomic uint32_t low, high;
        /* Frames that move between a vCPU's stock and the lists at a time, and about how many are
         * in all stocks; hints. */
        _Atomic uint32_t batch, stocked;
        struct notices_of notices;      /* of this cache; the owner provides the table */

        /* Free frames that are in no stock: in the lists, and those that were never used. */
        struct free_list list[FREE_LISTS];
        /* Their number, or more: a frame is counted before it is on a list, and no more counted
         * after it was taken.  A hint, except where the cleaner and a waiter meet (cleaner.c). */
        _Alignas(CACHE_LINE) _Atomic uint32_t nfree;
        /* Frames [fresh, nframes) were never used. */
        _Alignas(CACHE_LINE) _Atomic uint32_t fresh;

        /* Frames of pages that a stream has passed, or of low priority, + 1: hints, of which the
         * oldest are overwritten.  Any vCPU adds; the cleaner takes them from passed_head on. */
        _Alignas(CACHE_LINE) _Atomic uint32_t passed_tail;
        _Atomic uint32_t passed[PASSED_FRAMES];

        /* Frames that are LOCKED.  [I] At most half of all (page_set_locked).  Orders nothing. */
        _Alignas(CACHE_LINE) _Atomic uint32_t locked;

        /* The cold hand and the hot one: pieces of the frames that evictors have taken.  Relaxed:
         * claims keep two evictors at one frame apart. */
        _Alignas(CACHE_LINE) _Atomic uint64_t hand;
        _Alignas(CACHE_LINE) _Atomic uint64_t hot_hand;
        /* Frames that are HOT, but for what frame_list.hot has.  Relaxed: a hint. */
        _Alignas(CACHE_LINE) _Atomic uint32_t nhot;
        /* Pages that the hands have evicted, but for what sweepers have not told; the count at the
         * last tick, and at the one that is counted now (0: none is), which is a lock. */
        _Alignas(CACHE_LINE) _Atomic uint64_t evicted;
        _Atomic uint64_t ticked, ticking;
        /* Written at ticks under that lock, and read relaxed: how many frames are to be cold; the
         * tick that runs, as pte_now(); and what they follow from, a struct balance. */
        _Alignas(CACHE_LINE) _Atomic uint32_t target;
        _Atomic uint64_t now;
        _Alignas(CACHE_LINE) _Atomic uint32_t balance[BALANCE_WORDS];
        /* Whether the flush next_flush is due: A bits that the hand has cleared since the flush
         * before it began, and what passed_tail was then.  By all evictors; hints, relaxed. */
        _Alignas(CACHE_LINE) _Atomic uint64_t next_flush;
        _Atomic uint32_t cleared, passed_covered;

        /* The pager's writes.  These fields belong to the cleaner; during a fork the cleaner is
         * quiesced and they belong to the forking vCPU (page_write_back). */
        _Alignas(CACHE_LINE) struct sweeper cleaner;
        uint64_t spare_slot;            /* for the next page that lacks one; of one clock_pass() */
        uint32_t slot_hand;             /* the search for slots to take back */
        uint32_t slot_pause;            /* frames that cleaner passes before the next such search */
        uint32_t writing;               /* frames claimed for a write that is under way */
        uint32_t passed_head;
        struct frame_list freed;        /* the cleaner's: frames that are on no list yet */
        /* Evictions given up because there was no slot or the far tier failed.  Relaxed: others ask
         * only whether there were more. */
        _Atomic uint64_t unwritable;
};

#endif
