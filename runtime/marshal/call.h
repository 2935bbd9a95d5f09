/*
 * The raw call: how vmrun, for itself or for the program, enters the host kernel.
 */
#ifndef VMRUN_SYS_CALL_H
#define VMRUN_SYS_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <asm/unistd.h>
#include "vm/stop.h"

/* Not an errno that a program can see: a signal came first and the call had no effect.  The program
 * makes the call again after the signal's handler. */
#define SYS_PUT_OFF 512

/* The call waits with this mask instead of the thread's: if a signal ends it, the handler runs
 * under that mask. */
static inline void sys_waits_with(struct thread *t, uint64_t mask)
{
        t->signal.waits = true;
        t->signal.wait_mask = mask;
}

/* A call made by vmrun itself, which does not sleep and is never put off: value or -errno. */
long sys_own(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

/*
 * The program's call: value or -errno, or -SYS_PUT_OFF if a signal came before it had any effect.
 * -SYS_PUT_OFF is returned to the caller of syscall_forward() like an error: the program makes the
 * call again after its handler ran.
 */
long sys_enter(const _Atomic uint32_t *word, long nr, const uint64_t a[6])
        __attribute__((visibility("hidden")));
/* Where the code that a signal interrupted at rip has to continue. */
uint64_t sys_interrupted(uint64_t rip);

static inline long sys_raw_unless(const _Atomic uint32_t *word, long nr, const uint64_t a[6])
{
        struct thread *t = thread_self;

        threads_safe_begin(t);
        long ret = sys_enter(word, nr, a);
        threads_safe_end(t);
        return ret;
}

static inline long sys_raw(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                           uint64_t a5)
{
        const uint64_t a[6] = { a0, a1, a2, a3, a4, a5 };

        return sys_raw_unless(&sys_put_off, nr, a);
}

/*
 * A further part of a call that signals do not cut short, such as a call that waits only for a
 * disk: the part is made although a signal was taken.  That signal blocks all others, so at most
 * one can put it off.
 */
static inline long sys_raw_further(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                                   uint64_t a4, uint64_t a5)
{
        static const _Atomic uint32_t never;
        const uint64_t a[6] = { a0, a1, a2, a3, a4, a5 };
        long ret = sys_raw_unless(&never, nr, a);

        return ret == -SYS_PUT_OFF ? sys_raw_unless(&never, nr, a) : ret;
}

static inline uint64_t P(const void *p) { return (uint64_t)(uintptr_t)p; }

#define SYS_SIGKICK     16              /* SIGSTKFLT */

#endif
