/*
 * Guides: functions of the program that run while one of its faults waits (include/hints.h).
 *
 * A guide runs as program code: vcpu.mode is PROGRAM, so flushes and kicks reach it, and kern's
 * stack is empty.  What the fault needs to go on is in struct guide_run meanwhile.  The guide is
 * over when it returns, to an address where nothing is mapped, and likewise when it faults
 * elsewhere, traps, makes a system call that it may not, takes too long, or a signal comes.  Then
 * fault_guide_over() (fault.c) goes on where the fault left off.
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

/* Is this run the one of which the host says that it takes too long? */
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

/* If there is a guide for the address: makes it run when kern returns, and true.  The fault, which
 * holds nothing and is not published, is kept, with what it waits for and how many exits there had
 * been when it began. */
bool guide_begin(const struct fault *f, enum outcome awaits, enum hint_event event,
                 uint64_t exits);

/* What guide_begin() has kept. */
struct guided { struct fault f; enum outcome awaits; enum hint_event event; uint64_t exits; };

/* The guide is over: registers, extended state and what the fault knew are as they were.  True: it
 * returned, and wants to be called when the page is here. */
bool guide_finish(enum guide_end how, struct guided *fault);

#endif
