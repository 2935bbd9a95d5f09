/*
 * Words of the program that count pages on their way (pager/notices.h): HINT_COUNTED, HINT_WAIT.
 */
#ifndef VMRUN_COUNTED_H
#define VMRUN_COUNTED_H

#include <stdbool.h>
#include <stdint.h>
#include "paging/notice.h"

/* Brings a word in and pins it.  OUT *c, to be closed.  0; -EINVAL: it is not aligned, or in memory
 * that is shared; -EFAULT; while a guide runs -EAGAIN: it is not here. */
int counted_open(uint64_t addr, struct counted *c);
/* wrote: pages were counted there. */
void counted_close(const struct counted *c, bool wrote);

/* Waits until the word is 0.  0; -EINTR: the host has something to do first; -EINVAL: no page that
 * is on its way is counted there; or as counted_open(). */
long counted_wait(uint64_t addr);
/* Delivers pages that have come.  0; -EAGAIN: the word is not 0; or as counted_open(). */
long counted_look(uint64_t addr);

#endif
