/*
 * Scrub: reads back each good copy of each far page that this process holds, at a rate, compares it
 * with its sum, and makes a wrong copy right from a right one (vmctl scrub).
 *
 * A first look reads copies while the program runs, and holds no slot.  So a copy that does not
 * fit its sum says little: the page may be being written, or the slot may have another page by now.
 * The slot becomes a suspect, which gets a second look some time later:
 *
 * [I] A copy is called wrong only if, while its slot is held (held_take()),
 *       no write of the slot was under way when the hold began, and none began since;
 *       the slot's sum has not changed since the first look, and the process still holds the slot;
 *       the copy was read twice, and did not fit either time;
 *       no frame of the cache has the slot for a page that may have changed since it was written.
 *
 * The last condition is there because a page may change while it is written: then the bytes that
 * arrive fit no sum.  No vCPU reads them, since the frame is dirty, and stays so until its page is
 * written again.  A frame has the slot from before such a write begins, and keeps it while the slot
 * is held: the next write goes to another slot, as this slot is DUE.
 *
 * kern takes a slot a few instructions before it names the slot in a frame.  When the slot of a
 * suspect is held, it has been a suspect for AGAIN_MS, with one sum.  No vCPU stays that long
 * between these instructions.
 *
 * One scrub at a time.  A forked child has none, nor has the next program after execve.
 */
#ifndef VMRUN_FAR_SCRUB_H
#define VMRUN_FAR_SCRUB_H

#include <stdbool.h>
#include <stdint.h>

/* --- by the I/O side --- */

/* Does the steps that can be done now.  Returns how many. */
unsigned scrub_step(void);
/* When scrub_step() should be called again, in ms; -1: no scrub runs. */
int scrub_patience(void);
/* In a forked child: no scrub runs. */
void scrub_forked(void);

/* --- any thread, one at a time, not during fork --- */

bool scrub_runs(void);
/* Begins a scrub, where none runs.  most: bytes a second, 0: no limit.  pages: about as many will
 * be looked at; only for the report.  any: there may be such pages; else the scrub is over at once.
 */
void scrub_begin(uint64_t most, uint64_t pages, bool any);
/* The scrub begins nothing more, and is over soon. */
void scrub_to_stop(void);

/* Pages that were looked at; copies that were read, were wrong, were made right, or are on nodes
 * that do not answer; pages of which no copy is right. */
enum { SCRUB_PAGES, SCRUB_COPIES, SCRUB_BAD, SCRUB_REPAIRED, SCRUB_UNREAD, SCRUB_LOST,
       SCRUB_COUNTS };
/* Of all scrubs of this process, for statistics. */
uint64_t scrub_total(unsigned count);
/* Lost pages that are remembered, of each scrub. */
#define SCRUB_LOSSES 64
struct scrub_report {
        enum scrub_state { SCRUB_NONE, SCRUB_RUNS, SCRUB_OVER, SCRUB_STOPPED } state;
        uint64_t pages;                 /* to look at, as it was when it began */
        uint64_t count[SCRUB_COUNTS], rate;
        int64_t ms;                     /* that it took, or has taken so far */
        unsigned losses;                /* entries of loss[] */
        struct scrub_loss { uint64_t slot, page; unsigned node; } loss[SCRUB_LOSSES];
};
void scrub_report(struct scrub_report *r);

/* --- for vmctl: also with --io inline, where a thread of scrub_start.c does the work --- */

/* most: bytes a second; 0: no limit.  0, or -errno with why: -EBUSY: a scrub runs. */
#define SCRUB_WHY 256
int scrub_start(uint64_t most, char why[SCRUB_WHY]);
void scrub_stop(void);
void scrub_look(struct scrub_report *r);

/* For fork, and for a process that must have one thread: see struct ticker. */
void scrub_hold(void);
void scrub_release(void);
void scrub_rest(void);
void scrub_go_on(void);
void scrub_thread_forked(void);

#endif
