/*
 * Guides: which ranges of the program call which of its functions when they fault.
 *
 * paging/guide.c runs them.
 */
#ifndef VMRUN_GUIDES_H
#define VMRUN_GUIDES_H

#include <stdbool.h>
#include <stdint.h>
#include "abi_guide.h"
#include "base/kern.h"
#include "hints.h"

/* A guide that was stopped this often, interruptions not counted, is called no more. */
#define GUIDE_STOPS 3

/* How many guides are on.  A hint for faults: relaxed; a fault that sees it late calls no guide. */
extern _Atomic uint32_t guides_on __attribute__((visibility("hidden")));

/* Adds g, of which range, mapped, fn, arg and name are set.  0 or -ENOSPC. */
int guides_add(const struct guide *g);
/* Turns off guides whose range begins in [start, end), and waits until none of them runs.  The
 * caller holds no lock.  Returns how many guides these were. */
uint32_t guides_drop(uint64_t start, uint64_t end);
/* Called when the mappings at [start, end) are gone, or elsewhere: turns off guides whose function,
 * or all of whose range, was there.  A guide whose range was all mapped covers the rest of it, or
 * nothing if the rest is two pieces.  Does not wait: their code is gone, and a guide that still
 * runs there faults. */
void guides_forget(uint64_t start, uint64_t end);
/* The oldest guide that is on and was made after the guide of that order (0: the oldest of all).
 * False: there is none. */
bool guides_next(uint64_t after, struct hint_guide *out);

/* The guide of this address that may be called, or NULL.  OUT: its function and argument.  Its
 * `running` is counted until guides_leave(). */
struct guide *guides_find(uint64_t addr, uint64_t *fn, uint64_t *arg);
/* One call is over.  True: this was one stop too many, and the guide is called no more. */
bool guides_count(struct guide *g, enum guide_end how);
void guides_leave(struct guide *g);

#endif
