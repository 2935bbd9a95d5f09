/*
 * An instruction that never ends, though all its faults succeed.
 *
 * It needs all its pages at once: of its code, of what it reads and writes.  Where pages can no
 * longer be written, as after the loss of a node, fewer frames than that may be left for pages that
 * need no write.  Then each page that it faults on takes the frame of another one.
 *
 * Such a program changes no register between the faults, however many there are.  One that is only
 * slow does: it ends an instruction now and then.  So neither time nor the number of evictions
 * counts here.
 */
#include "base/kern.h"
#include "base/state.h"
#include "pager/pager.h"
#include "paging/stuck.h"

/* Faults that waited, and got a frame each: for another page of the instruction, and none needs as
 * many.  Threads may take frames from each other, so it may need some of them more than once. */
#define WAITS_IN_VAIN 256

/* [I] rip, rsp, and all general registers: without the flags, which the CPU itself changes in the
 * frame of a fault, and without the error code, as one instruction reads, writes, and is fetched.
 * An instruction of many steps shows each step in them (rep), or ends after some 16 (gather).  And
 * the number of system calls, for a loop that shows itself in no register. */
static uint64_t registers(void)
{
        const struct regs *r = &vcpu_self.regs;
        const uint64_t *cnt = counters();
        uint64_t sum = r->rip * 31 + r->rsp +
                       ((cnt[CNT_SYSCALLS_LOCAL] + cnt[CNT_SYSCALLS_FORWARDED]) << 32);

        for (const uint64_t *p = &r->r15; p <= &r->rax; p++)
                sum = sum * 0x9e3779b97f4a7c15 + *p;
        return sum;
}

/* The cleaner's line is looked at only twice, late: most waits are no such case. */
bool is_stuck(void)
{
        struct stuck *s = &vcpu_self.stuck;
        uint64_t now = registers();

        s->waited = 0;
        if (s->registers != now)
                *s = (struct stuck){ .registers = now };
        s->waits++;
        if (s->waits == WAITS_IN_VAIN / 2)
                s->unwritable = atomic_load_explicit(&pager.unwritable, memory_order_relaxed);
        if (s->waits < WAITS_IN_VAIN)
                return false;
        s->waits = 0;
        /* Else all pages could be written meanwhile, and a frame comes. */
        return s->unwritable != atomic_load_explicit(&pager.unwritable, memory_order_relaxed);
}
