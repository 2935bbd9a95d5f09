/*
 * The service vCPU, and how other vCPUs ask it for frames.
 */
#ifndef VMRUN_CLEANER_H
#define VMRUN_CLEANER_H

#include "base/kern.h"
#include "base/state.h"

_Noreturn void cleaner_main(void);

/* Wakes the service vCPU if it sleeps and free frames are short; may exit. */
void cleaner_wake(void);
static inline void cleaner_poke(void)
{
        if (__builtin_expect(atomic_load_explicit(&pager.nfree, memory_order_relaxed) < pager.low,
                             0))
                cleaner_wake();
}

/* Free frames are short, and this vCPU could use some at once: has the cleaner freed some since?
 * If all threads share one CPU, the cleaner runs only if this vCPU lets it.  May exit, so no fault
 * is published. */
bool cleaner_gets_a_turn(void);

/* Makes a frame available to this vCPU; may sleep, so no fault is published.
 * 0, or -ENOMEM: nothing can be freed. */
int frames_wait(void);

#endif
