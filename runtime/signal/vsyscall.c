/*
 * The vsyscall page is not there: a jump to it faults, and the call is carried out here.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include "layout.h"
#include "memory/gmem.h"
#include "signal/trapped.h"
#include "signal/vsyscall.h"
#include "x86.h"

#define EACH  0x400     /* bytes from one call to the next */
#define CALLS 3

/* Stores a result where the program wants it; nothing if `at` is null.  0 or -EFAULT. */
static int store(struct thread *t, uint64_t at, const void *value, size_t size)
{
        return at ? gmem_write(t, at, value, size) : 0;
}

/* Calls libc, which asks the host's vDSO: no filter of the program's sees a system call. */
static long call(struct thread *t, uint64_t nr, uint64_t a, uint64_t b)
{
        struct timeval tv;
        struct timezone tz;
        unsigned cpu, node;

        switch (nr) {
        case 0:
                gettimeofday(&tv, &tz);
                return store(t, a, &tv, sizeof(tv)) || store(t, b, &tz, sizeof(tz)) ? -EFAULT : 0;
        case 1:
                gettimeofday(&tv, NULL);
                return store(t, a, &tv.tv_sec, sizeof(tv.tv_sec)) ? -EFAULT : tv.tv_sec;
        default:
                getcpu(&cpu, &node);
                return store(t, a, &cpu, sizeof(cpu)) || store(t, b, &node, sizeof(node)) ? -EFAULT
                                                                                            : 0;
        }
}

bool vsyscall_carried_out(struct thread *t, struct trapped *x)
{
        struct regs *r = &t->v->regs;
        uint64_t nr = (r->rip - VSYSCALL) / EACH, back;
        long ret = -EFAULT;

        /* Any fault but the fetch of an instruction of this page is an ordinary fault. */
        if (r->rip != t->v->cr2 || r->rip - VSYSCALL >= PAGE_SIZE)
                return false;
        if (nr < CALLS && r->rip % EACH == 0 && gmem_read(t, &back, r->rsp, sizeof(back)) == 0)
                ret = call(t, nr, r->rdi, r->rsi);
        if (ret == -EFAULT) {
                *x = (struct trapped){ .signo = SIGSEGV, .code = SI_KERNEL, .vector = x->vector };
                return false;
        }
        r->rax = (uint64_t)ret;
        r->rip = back;
        r->rsp += sizeof(back);
        return true;
}
