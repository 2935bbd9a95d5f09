/*
 * The service vCPU, and how other vCPUs ask it for frames.
 */
#ifndef VMRUN_CLEANER_H
#define VMRUN_CLEANER_H

#include "base/kern.h"
#include "base/state.h"

_Noreturn void cleaner_main(void);

/* Wakes the service vCPU if it sleeps; may exit. */
void cleaner_wake(void);
/* Does so if free frames were short at this vCPU's last refill. */
static inline void cleaner_poke(void)
{
        if (__builtin_expect(vcpu_self.frames.low, 0)) {
                vcpu_self.frames.low = false;
                cleaner_wake();
        }
}

/* Free frames are short, and this vCPU could use some at once: has the cleaner freed some since?
 * If all threads share one CPU, the cleaner runs only if this vCPU lets it.  May exit, so no fault
 * is published. */
bool cleaner_gets_a_turn(void);

/* Makes a frame available to this vCPU; may sleep, so no fault is published.
 * 0, or -ENOMEM: nothing can be freed. */
int frames_wait(void);

#endif
