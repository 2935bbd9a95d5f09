/*
 * A fake environment for the pager core: frames and page-table entries in arrays, and a far tier
 * that can be told to delay, fail and run full. Everything that a test may want to steer is a hook
 * or a field of `env`.
 *
 * A page is ENV_WORDS words: the pager never looks into pages, so they may be small.
 */
#ifndef TEST_PAGER_ENV_H
#define TEST_PAGER_ENV_H

#include "pager/pager.h"

#define ENV_WORDS 8
#define ENV_PFN0  0x100000ull   /* frame 0 does not have page frame number 0, as in the guest */

typedef _Atomic uint64_t env_page[ENV_WORDS];

/* A transfer that runs while the pager does something else. */
enum env_transfer_state {
        TRANSFER_FREE,
        TRANSFER_OURS,
        TRANSFER_READ,
        TRANSFER_WRITE,
        TRANSFER_PREFETCH,
        TRANSFER_MARKER,
        TRANSFER_OVER
};
struct env_transfer {
        _Atomic uint32_t state; /* enum env_transfer_state; a thread that sets OURS owns the rest */
        frame_t frame;
        uint64_t slot;
        int err;
};
#define ENV_TRANSFERS 4

struct env {
        struct pager pg;
        struct frame *frames;
        uint32_t nframes, nslots, npages;
        env_page *content;              /* of the frames */
        env_page *far;                  /* of the slots */
        _Atomic uint32_t *slot_used;    /* 0: free, 1: ours, more: other processes hold it too */
        pte_slot_t *pte;                /* npages entries */

        _Atomic uint64_t flush_epoch;   /* last one begun */
        _Atomic uint64_t flushed;       /* last one completed, where no flush_done hook is set */
        _Atomic int64_t charged;
        _Atomic uint64_t reads, writes, allocs, waits, wakes, uncharged;
        _Atomic uint64_t looks;         /* is this slot writable? */

        struct env_transfer transfer[ENV_TRANSFERS];
        int fail_posted;                /* what a read that was posted ends with */
        _Atomic uint32_t fetch_failed;  /* it did; one vCPU */

        /* Hooks, all optional. */
        bool (*post)(void); /* shall this transfer run by itself, until env_io_step() ends it? */
        bool (*at_once)(uint64_t slot); /* with post: is no transfer of this slot posted? */
        void (*step)(void); /* at every call from the pager, and between two words of a transfer */
        void (*late)(void); /* after the next epoch was read, before it is used */
        void (*alloc)(void);            /* before a slot is looked for */
        int (*io)(bool write, uint64_t slot); /* before a transfer: 0, or the error it ends with */
        bool (*flush_done)(uint64_t epoch);
        void (*flush_look)(void);
        void (*wait)(pte_slot_t *pte, pte_t seen);
        void (*wake)(pte_slot_t *pte);
        void (*returns)(struct returns *sum);
        void (*bug)(const char *what, uint64_t a, uint64_t b);  /* must not return */
};
extern struct env env;

/* Sets up env with all hooks and counters clear. first_epoch is the last that began and ended. */
void env_setup(uint32_t nframes, uint32_t nslots, uint32_t npages, uint64_t first_epoch);
void env_teardown(void);

/* A pass of the cleaner's over n frames, however many are freed. */
static inline struct clock_result env_pass(uint32_t n, uint64_t *cnt)
{
        return clock_pass(&env.pg, n, env.nframes, cnt);
}

/* Ends one transfer that was posted, beginning the search at number `first`. False: there was none.
 * A read that was posted ends with fail_posted. */
bool env_io_step(unsigned first);

/* When nothing runs: does each frame and each slot have exactly one owner, and do the counts agree?
 * lists: all stocks. NULL, or what is wrong (a static text). */
const char *env_audit(struct frame_list *const lists[], unsigned nlists);
/* Like env_audit(), and nothing may be in use: all frames and slots free, all entries NONE. */
const char *env_audit_empty(void);

#endif
