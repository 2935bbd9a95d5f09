/*
 * fork, and clone of a process.
 */
#include <sched.h>
#include <signal.h>
#include "sys.h"
#include "../fork.h"

long sys_fork(struct thread *t, long nr, const uint64_t a[6])
{
        (void)nr;
        (void)a;
        return fork_process(t, &(struct fork_args){ .flags = SIGCHLD });
}

long sys_clone(struct thread *t, long nr, const uint64_t a[6])
{
        struct fork_args f = { .flags = (uint32_t)a[0], .stack = a[1], .parent_tid = a[2], .child_tid = a[3], .tls = a[4] };

        if (f.flags & CLONE_VM)
                return sys_nothing_yet(t, nr, a);
        if (f.flags & CLONE_PIDFD) {            /* clone() has one pointer for both */
                if (f.flags & CLONE_PARENT_SETTID)
                        return -EINVAL;
                f.pidfd = a[2];
        }
        return fork_process(t, &f);
}
