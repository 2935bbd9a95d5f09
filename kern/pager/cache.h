/*
 * The cache of a guest: its frames, its free list and the state of the CLOCK hand.  The pager
 * (pager.h) changes them; far/ and base/ read from them where a frame is.
 */
#ifndef VMRUN_CACHE_H
#define VMRUN_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "pager/frame.h"
#include "pager/notices.h"

#define PASSED_FRAMES 1024

struct pager {
        struct frame *frames;
        uint32_t nframes;
        uint64_t pfn0;                  /* guest-physical page number of frame 0 */
        bool blind;                     /* pages come with A=1, so A does not tell their use */

        /* The cleaner is woken below low and works up to high: pager_marks(), by the cleaner.
         * Other vCPUs read them as hints. */
        _Atomic uint32_t low, high;
        /* Frames that move between a vCPU's reserve and the global list at a time; a hint. */
        _Atomic uint32_t batch;

        /* lock guards free_head, fresh and stores to nfree.  It is held for one batch, never across
         * a call of env_*. */
        _Atomic uint32_t lock;
        /* Global free frames, fresh ones included; read without the lock as a hint. */
        _Atomic uint32_t nfree;
        uint32_t fresh;                 /* frames [fresh, nframes) were never used */
        frame_t free_head;              /* linked through frame.slot */

        /* Frames of pages that a stream has passed, or of low priority, + 1: hints, of which the
         * oldest are overwritten.  Any vCPU adds; the cleaner takes them from passed_head on. */
        _Atomic uint32_t passed[PASSED_FRAMES], passed_tail;
        uint32_t passed_head;

        /* The pager's writes.  These fields belong to the cleaner; during a fork the cleaner is
         * quiesced and they belong to the forking vCPU (page_write_back). */
        uint32_t hand, slot_hand;       /* CLOCK, and the search for slots to take back */
        uint32_t slot_pause;            /* frames that hand passes before the next such search */
        uint32_t writing;               /* frames claimed for a write that is under way */
        /* A bits that the hand has cleared, and passed_tail, since the flush before this one began:
         * whether it is due.  Hints. */
        uint64_t next_flush;
        uint32_t cleared, passed_covered;
        /* Evictions given up because there was no slot or the far tier failed. */
        uint64_t unwritable;

        /* Frames that are LOCKED.  [I] At most half of all (page_set_locked).  Orders nothing. */
        _Atomic uint32_t locked;

        struct notices_of notices;      /* of this cache; the owner provides the table */
};

#endif
