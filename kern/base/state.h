/*
 * State that exists once in a guest.
 */
#ifndef VMRUN_STATE_H
#define VMRUN_STATE_H

#include "base/lock.h"
#include "pager/cache.h"

#pragma GCC visibility push(hidden)

extern struct pager pager;              /* the cache */
/* Guards the VMA tree against other writers, and all range operations. */
extern struct lock mm_lock;

#pragma GCC visibility pop

#endif
