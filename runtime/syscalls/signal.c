/*
 * Signals, as far as they go without handlers of the program: masks, dispositions SIG_DFL and SIG_IGN, the alternate stack.
 *
 * Masks and dispositions are the host thread's own, so the kernel does what Linux does.  Only vmrun's kick signal is apart:
 * always blocked out here, never shown.  Where vmrun has a handler of its own (SIGBUS for truncated files), the
 * program's disposition is only recorded.
 */
#include <signal.h>
#include <pthread.h>
#include "sys.h"

#define NSIG_ 64

/* The kernel's own struct sigaction. */
struct ksigaction { uint64_t handler, flags, restorer, mask; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ksigaction recorded[NSIG_ + 1];
static bool known[NSIG_ + 1];

static struct { uint64_t sp; int32_t flags, pad; uint64_t size; } none_stack = { 0, 2 /* SS_DISABLE */, 0, 0 };
static _Thread_local struct { uint64_t sp; int32_t flags, pad; uint64_t size; bool set; } alt;

/* The program's disposition; on first sight what the host has, if that can be the program's. */
static struct ksigaction *disposition(int sig)
{
        struct ksigaction *k = &recorded[sig];

        if (!known[sig]) {
                known[sig] = true;
                if (sig == SYS_SIGKICK || sys_raw(__NR_rt_sigaction, (uint64_t)sig, 0, P(k), 8, 0, 0) || k->handler > 1)
                        memset(k, 0, sizeof *k);
        }
        return k;
}

static bool host_has_handler(int sig)
{
        struct ksigaction k;

        return sig == SYS_SIGKICK || (!sys_raw(__NR_rt_sigaction, (uint64_t)sig, 0, P(&k), 8, 0, 0) && k.handler > 1);
}

long sys_rt_sigaction(struct thread *t, long nr, const uint64_t a[6])
{
        int sig = (int)a[0];
        struct ksigaction new, old, *k;
        long ret = 0;

        if (a[3] != 8)
                return -EINVAL;
        if (a[1] && gmem_read(t, &new, a[1], sizeof new))
                return -EFAULT;
        if (sig < 1 || sig > NSIG_ || (a[1] && (sig == SIGKILL || sig == SIGSTOP)))
                return -EINVAL;
        if (a[1] && new.handler > 1) {
                sys_say_once(0x30000, "signal handlers are not supported yet: rt_sigaction gives ENOSYS");
                return -ENOSYS;
        }
        pthread_mutex_lock(&lock);
        k = disposition(sig);
        old = *k;
        if (a[1]) {
                new.mask &= ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1));
                if (!host_has_handler(sig))
                        ret = sys_raw(nr, a[0], P(&(struct ksigaction){ .handler = new.handler }), 0, 8, 0, 0);
                if (!ret)
                        *k = new;
        }
        pthread_mutex_unlock(&lock);
        return a[2] && !ret ? sys_deliver(t, a[2], &old, sizeof old, 0) : ret;
}

long sys_rt_sigprocmask(struct thread *t, long nr, const uint64_t a[6])
{
        uint64_t set = 0, old = 0;
        long ret;

        if (a[3] != 8)
                return -EINVAL;
        if (a[1]) {
                if (gmem_read(t, &set, a[1], 8))
                        return -EFAULT;
                if ((int)a[0] == SIG_SETMASK)
                        set |= SYS_KICKBIT;
                else
                        set &= ~SYS_KICKBIT;
        }
        ret = sys_raw(nr, a[0], a[1] ? P(&set) : 0, P(&old), 8, 0, 0);
        if (ret)
                return ret;
        if (a[1])
                t->sigmask_dirty = true;
        old &= ~SYS_KICKBIT;
        return a[2] ? sys_deliver(t, a[2], &old, 8, 0) : 0;
}

long sys_rt_sigpending(struct thread *t, long nr, const uint64_t a[6])
{
        uint64_t set = 0;
        long ret;

        if (a[1] > 8)
                return -EINVAL;
        ret = sys_raw(nr, P(&set), 8, 0, 0, 0, 0);
        set &= ~SYS_KICKBIT;
        return ret ? ret : sys_deliver(t, a[0], &set, a[1], 0);
}

long sys_sigaltstack(struct thread *t, long nr, const uint64_t a[6])
{
        struct { uint64_t sp; int32_t flags, pad; uint64_t size; } new, old;

        (void)nr;
        if (a[0] && gmem_read(t, &new, a[0], sizeof new))
                return -EFAULT;
        memset(&old, 0, sizeof old);
        if (alt.set) {
                old.sp = alt.sp;
                old.size = alt.size;
                old.flags = alt.flags;
        } else {
                memcpy(&old, &none_stack, sizeof old);
        }
        if (a[0]) {
                int32_t mode = new.flags & ~(int32_t)0x80000000;        /* SS_AUTODISARM is a flag beside the mode */

                if (mode != 0 && mode != 1 && mode != 2)
                        return -EINVAL;
                if (mode == 2) {
                        alt.set = true;
                        alt.sp = alt.size = 0;
                        alt.flags = new.flags;
                } else {
                        if (new.size < 2048)
                                return -ENOMEM;
                        alt.set = true;
                        alt.sp = new.sp;
                        alt.size = new.size;
                        alt.flags = new.flags & (int32_t)0x80000000;
                }
        }
        return a[1] ? sys_deliver(t, a[1], &old, sizeof old, 0) : 0;
}

/* SIGEV_THREAD carries a pointer to a 32-byte cookie that the kernel copies at once. */
long sys_mq_notify(struct thread *t, long nr, const uint64_t a[6])
{
        struct sigevent *ev = sys_in_null(t, a[1], sizeof *ev);

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (ev && (void *)ev != sys_bad() && ev->sigev_notify == SIGEV_THREAD)
                ev->sigev_value.sival_ptr = sys_in(t, P(ev->sigev_value.sival_ptr), 32, 32);
        return sys_raw(nr, a[0], P(ev), 0, 0, 0, 0);
}
