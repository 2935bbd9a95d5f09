/*
 * Guides: functions of the program that run while one of its faults waits (include/hints.h).
 *
 * A guide runs as program code: vcpu.mode is PROGRAM, so flushes and kicks reach it, and kern's
 * stack is empty.  Meanwhile struct guide_run has the data by which the fault continues.  The guide
 * is over when it returns, to an address where nothing is mapped, and likewise when it faults
 * elsewhere, traps, makes a system call that it may not, takes too long, or a signal comes.  Then
 * fault_guide_over() (fault.c) continues the fault.
 */
#ifndef VMRUN_GUIDE_H
#define VMRUN_GUIDE_H

#include <stdatomic.h>
#include "abi_guide.h"
#include "hints.h"
#include "paging/attempt.h"
#include "space/guides.h"

/* Where a guide returns to: in the page below its stack, which is not mapped. */
#define GUIDE_RETURN (VCPU_SELF + VCPU_GUIDE_OFF + PAGE_SIZE / 2)

static inline bool guide_runs(void) { return vcpu_self.guided; }

/* Does the host say that this run takes too long? */
static inline bool guide_is_late(void)
{
        return guide_runs() &&
               atomic_load_explicit(&vcpu_self.guide_late, memory_order_relaxed) ==
                       atomic_load_explicit(&vcpu_self.guide_run, memory_order_relaxed);
}

/* [addr, addr + len) is within the stack of guides. */
static inline bool guide_stack_has(uint64_t addr, uint64_t len)
{
        const uint64_t start = VCPU_SELF + VCPU_GUIDE_STACK, end = VCPU_SELF + VCPU_GUIDE_STACK_TOP;

        return addr >= start && addr < end && len <= end - addr;
}

/* True: the address has a guide, which will run when kern returns.  Keeps the fault, which holds
 * nothing and is not published, with the outcome that it awaits, and the number of exits when it
 * began. */
bool guide_begin(const struct fault *f, enum outcome awaits, enum hint_event event,
                 uint64_t exits);

/* The fault that guide_begin() has kept. */
struct guided { struct fault f; enum outcome awaits; enum hint_event event; uint64_t exits; };

/* The guide is over: registers, extended state and *fault are as they were.  True: the guide
 * returned, and wants to be called again when the page is here. */
bool guide_finish(enum guide_end how, struct guided *fault);

#endif
