/*
 * The system calls about signals: dispositions and handlers, masks, the alternate stack, the return
 * from a handler.
 *
 * Masks are the host thread's own, so the host kernel serves the calls about them.
 * signal/signals.c delivers signals.
 */
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include "base/privfd.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "signal/signals.h"
#include "syscalls/handlers.h"
#include "vm/vcpu.h"

long sys_rt_sigaction(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int sig = (int)a[0];
        struct ksigaction new, old;
        long ret;

        (void)row;
        if (a[3] != 8)
                return -EINVAL;
        if (a[1] && gmem_read(t, &new, a[1], sizeof(new)))
                return -EFAULT;
        if (sig < 1 || sig > SIGNALS_MAX || (a[1] && (sig == SIGKILL || sig == SIGSTOP)))
                return -EINVAL;
        ret = signals_action(t, sig, a[1] ? &new : NULL, &old);
        return a[2] && !ret ? sys_deliver(t, a[2], &old, sizeof(old), 0) : ret;
}

static int64_t now_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/*
 * vmrun's kick is a signal of the program's as well: other threads may take it off the queue first,
 * and give it back (vm/vcpu.c, put_off()).  This thread was then woken for nothing.  The kernel
 * returns EINTR although no handler has run: the thread waits for the rest of its time.
 */
long sys_rt_sigtimedwait(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct timespec left = { 0 };
        siginfo_t info;
        uint64_t set;
        long ret;

        if (a[3] != 8 || gmem_read(t, &set, a[0], 8) || !(set >> (KICK_SIGNAL - 1) & 1) ||
            (a[2] && gmem_read(t, &left, a[2], sizeof(left))) ||
            left.tv_sec < 0 || left.tv_sec > INT32_MAX || (uint64_t)left.tv_nsec >= 1000000000)
                return sys_generic(t, row, a);
        const int64_t end = now_ns() + left.tv_sec * 1000000000ll + left.tv_nsec;
        do {
                ret = sys_raw(row->nr, P(&set), P(&info), a[2] ? P(&left) : 0, 8, 0, 0);
                const int64_t ns = end > now_ns() ? end - now_ns() : 0;
                left = (struct timespec){ ns / 1000000000, ns % 1000000000 };
        } while (ret == -EINTR && !sys_put_off);
        return ret > 0 && a[1] ? sys_deliver(t, a[1], &info, sizeof(info), ret) : ret;
}

long sys_rt_sigreturn(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t mask = signals_hold(t);
        int err = sigframe_pop(t, &mask);

        (void)row;
        (void)a;
        signals_release(t, mask);
        /* All registers come from the frame now, rcx and r11 too. */
        atomic_fetch_or(&t->v->event, EVENT_IRET);
        if (err)
                signals_fault(t, SIGSEGV, SI_KERNEL, 0, SIGNALS_NO_VECTOR);
        return (long)t->v->regs.rax;
}

long sys_rt_sigprocmask(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t set = 0, old = 0;
        long ret;

        if (a[3] != 8)
                return -EINVAL;
        if (a[1] && gmem_read(t, &set, a[1], 8))
                return -EFAULT;
        ret = sys_raw(row->nr, a[0], a[1] ? P(&set) : 0, P(&old), 8, 0, 0);
        if (ret)
                return ret;
        if (a[1])
                t->sigmask_dirty = true;
        return a[2] ? sys_deliver(t, a[2], &old, 8, 0) : 0;
}

long sys_rt_sigpending(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint64_t set = 0;
        long ret;

        if (a[1] > 8)
                return -EINVAL;
        ret = sys_raw(row->nr, P(&set), 8, 0, 0, 0, 0);
        return ret ? ret : gmem_write(t, a[0], &set, a[1]) ? -EFAULT : 0;
}

long sys_sigaltstack(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct altstack new, old;
        int err;

        (void)row;
        if (a[0] && gmem_read(t, &new, a[0], sizeof(new)))
                return -EFAULT;
        err = sigframe_altstack(t, a[0] ? &new : NULL, &old);
        return err ? err : sys_deliver(t, a[1], &old, sizeof(old), 0);
}

/* SIGEV_THREAD carries a pointer to a 32-byte cookie that the kernel copies at once. */
long sys_mq_notify(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct sigevent *ev = sys_in_null(t, a[1], sizeof(*ev));

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (ev && (void *)ev != sys_bad() && ev->sigev_notify == SIGEV_THREAD)
                ev->sigev_value.sival_ptr = sys_in(t, P(ev->sigev_value.sival_ptr), 32, 32);
        return sys_raw(row->nr, a[0], P(ev), 0, 0, 0, 0);
}
