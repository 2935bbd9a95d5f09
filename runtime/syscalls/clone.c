/*
 * clone, clone3, fork, vfork: reads the request and passes it on: to make a thread
 * (process/threads.c), a child that shares the address space (process/vfork.c), or a child with its
 * own (process/fork.c).
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include "base/message.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "process/fork.h"
#include "process/start.h"
#include "process/vfork.h"
#include "signal/signals.h"
#include "syscalls/handlers.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ull
#endif
/* Without CLONE_NEWTIME, as in a kernel without CONFIG_TIME_NS. */
#define CLONE3_FLAGS                                                                             \
        ((CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP) |                                             \
         (0xffffffffull & ~(uint64_t)(CSIGNAL | CLONE_DETACHED)))

/* Flags that NPTL uses and that every host thread has. */
#define THREAD_NEEDS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)
#define THREAD_KNOWS                                                                             \
        (THREAD_NEEDS | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | \
         CLONE_CHILD_CLEARTID | CLONE_DETACHED | CLONE_IO | CLONE_PTRACE | CLONE_UNTRACED)

/* The kernel's own checks, in its order; there that of tls comes after errors of resources. */
static long check_request(const struct clone_request *rq)
{
        const uint64_t f = rq->flags, both = CLONE_PIDFD | CLONE_PARENT_SETTID;

        if ((f & both) == both && rq->pidfd == rq->parent_tid)
                return -EINVAL;
        if ((f & (CLONE_NEWNS | CLONE_FS)) == (CLONE_NEWNS | CLONE_FS) ||
            (f & (CLONE_NEWUSER | CLONE_FS)) == (CLONE_NEWUSER | CLONE_FS))
                return -EINVAL;
        if ((f & CLONE_THREAD) && !(f & CLONE_SIGHAND))
                return -EINVAL;
        if ((f & CLONE_SIGHAND) && !(f & CLONE_VM))
                return -EINVAL;
        if ((f & CLONE_THREAD) && (f & (CLONE_NEWUSER | CLONE_NEWPID | CLONE_PIDFD)))
                return -EINVAL;
        return (f & CLONE_SETTLS) && rq->tls >= TASK_SIZE ? -EPERM : 0;
}

/* Flags of a process that stops the threads of its parent and reads their memory, as LeakSanitizer
 * makes it at the end.  It asks not to be traced itself (CLONE_UNTRACED). */
#define TRACER (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED)

/* Without -v too: the program ends with an error, and its unwritten output is lost. */
static void say_no_tracer(void)
{
        static atomic_flag said = ATOMIC_FLAG_INIT;     /* orders nothing */

        if (!atomic_flag_test_and_set(&said))
                warnx_("LeakSanitizer cannot look for leaks here, as its tracer is refused "
                       "(ENOSYS), and ends the program: set ASAN_OPTIONS=detect_leaks=0 "
                       "(LSAN_OPTIONS for -fsanitize=leak)");
}

static long make(struct thread *t, const struct clone_request *rq)
{
        long ret = check_request(rq);

        if (ret)
                return ret;
        if ((rq->flags & CLONE_PIDFD) && gmem_check(t, rq->pidfd, sizeof(int), true))
                return -EFAULT;         /* before a child exists whose pid could not be stored */
        if (rq->flags & CLONE_THREAD) {
                if ((rq->flags & THREAD_NEEDS) == THREAD_NEEDS &&
                    !(rq->flags & ~(uint64_t)THREAD_KNOWS))
                        return threads_make(t, rq);
                info_once(0x70000, "a thread with clone flags 0x%llx is not supported: EINVAL",
                          (unsigned long long)rq->flags);
                return -EINVAL;
        }
        if ((rq->flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK))
                return vfork_make(t, rq);
        if (rq->flags & CLONE_VM) {
                if ((rq->flags & TRACER) == TRACER)
                        say_no_tracer();
                info_once(0x70001,
                          "a process that runs beside its parent in its parent's memory (clone "
                          "flags 0x%llx) is not supported: ENOSYS",
                          (unsigned long long)rq->flags);
                return -ENOSYS;
        }
        return fork_process(t, rq);
}

long sys_clone(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        const struct clone_request rq = {
                .flags = a[0] & 0xffffffff & ~(uint64_t)(CSIGNAL | CLONE_DETACHED),
                /* With a number of no signal the parent gets no signal at the end, as with 0. */
                .exit_signal = (a[0] & CSIGNAL) <= SIGNALS_MAX ? (int)(a[0] & CSIGNAL) : 0,
                .stack = a[1],
                .parent_tid = a[2],
                .pidfd = a[2],
                .child_tid = a[3],
                .tls = a[4],
        };

        (void)row;
        if ((a[0] & CLONE_PIDFD) && (a[0] & CLONE_DETACHED))
                return -EINVAL;
        return make(t, &rq);
}

long sys_fork(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        (void)row;
        (void)a;
        return fork_process(t, &(struct clone_request){ .exit_signal = SIGCHLD });
}

long sys_vfork(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        const struct clone_request rq = { .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD };

        (void)row;
        (void)a;
        return make(t, &rq);
}

struct clone3_args {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
                set_tid_size, cgroup;
};
#define PID_LEVELS 32                   /* Linux's MAX_PID_NS_LEVEL */

/* The checks that only clone3 makes, in the kernel's order.  size: of the program's struct. */
static long check_args(struct thread *t, const struct clone3_args *c, uint64_t size)
{
        if (c->set_tid_size > PID_LEVELS || !c->set_tid != !c->set_tid_size)
                return -EINVAL;
        if (c->exit_signal > SIGNALS_MAX)
                return -EINVAL;
        if ((c->flags & CLONE_INTO_CGROUP) && (c->cgroup > INT_MAX || size < sizeof(*c)))
                return -EINVAL;
        if (c->set_tid && gmem_check(t, c->set_tid, c->set_tid_size * sizeof(pid_t), false))
                return -EFAULT;
        if ((c->flags & ~CLONE3_FLAGS) ||
            ((c->flags & CLONE_SIGHAND) && (c->flags & CLONE_CLEAR_SIGHAND)))
                return -EINVAL;
        if ((c->flags & (CLONE_THREAD | CLONE_PARENT)) && c->exit_signal)
                return -EINVAL;
        return !c->stack != !c->stack_size || c->stack_size > TASK_SIZE ||
               c->stack > TASK_SIZE - c->stack_size ? -EINVAL : 0;
}

long sys_clone3(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct clone3_args c = { 0 };
        const uint64_t first_version = 64;
        uint64_t size = a[1];

        (void)row;
        if (size > PAGE_SIZE)
                return -E2BIG;
        if (size < first_version)
                return -EINVAL;
        char *all = sys_in(t, a[0], size, PAGE_SIZE);
        if ((void *)all == sys_bad())
                return -EFAULT;
        for (uint64_t i = sizeof(c); i < size; i++)
                if (all[i])
                        return -E2BIG;  /* an unknown extension */
        memcpy(&c, all, size < sizeof(c) ? size : sizeof(c));
        long err = check_args(t, &c, size);
        if (err)
                return err;
        if (c.set_tid_size || (c.flags & CLONE_INTO_CGROUP)) {
                /* choosing a pid or a control group is for checkpointers and service managers */
                info_once(0x70002, "clone3 with a pid or a control group is not supported: EPERM");
                return -EPERM;
        }
        const struct clone_request rq = {
                .flags = c.flags,
                .exit_signal = (int)c.exit_signal,
                .stack = c.stack ? c.stack + c.stack_size : 0,
                .parent_tid = c.parent_tid,
                .pidfd = c.pidfd,
                .child_tid = c.child_tid,
                .tls = c.tls,
        };
        return make(t, &rq);
}
