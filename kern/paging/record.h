/*
 * Noting which pages are waited for (`--record`).
 */
#ifndef VMRUN_RECORD_H
#define VMRUN_RECORD_H

#include "base/kern.h"

/* Is the program recorded?  Then no page is prefetched, so that each page that is needed is
 * seen. */
static inline bool recording(void) { return __builtin_expect(control.record != 0, 0); }

/* This vCPU waits for the page at addr.  No fault is published. */
void record_wait(uint64_t addr);

#endif
