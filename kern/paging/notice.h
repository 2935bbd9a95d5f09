/*
 * Notices (pager/notices.h) of this cache.
 */
#ifndef VMRUN_NOTICE_H
#define VMRUN_NOTICE_H

#include <stdbool.h>
#include "pager/notices.h"

/* A word of the program that counts, and its frame, which is pinned (paging/counted.h). */
struct counted { _Atomic uint32_t *word; frame_t frame; };

/* Is there room for another page? */
bool counted_room(void);
/* If the page is on its way: the word is one more until the page has come.  False: the page is not
 * on its way. */
bool counted_add(const struct counted *c, pte_slot_t *pte);

/* Waits, bounded, for the page of a notice, which may belong to another word by now. */
void notice_wait(const struct notice *n);

/* Waits until no notice is in use.  No other thread of the program runs, as before a fork: so the
 * child finds no count that nothing ends. */
void notices_settle(void);

#endif
