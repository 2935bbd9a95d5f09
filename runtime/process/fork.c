/*
 * See fork.h.  In order:
 *
 *   parent   holds signals, stops the other threads and the cleaner, takes the image; the host
 *            forks
 *   child    joins the tree, makes its own VM, puts the image into it, and continues where the
 *            parent made the call
 *   parent   all threads continue
 *
 * Meanwhile no thread of the program runs in the parent, and of vmrun's threads only this one.  So
 * no lock is held when the host forks, and malloc's data is consistent.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/own_thread.h"
#include "base/options.h"
#include "base/privfd.h"
#include "control/control.h"
#include "far/far.h"
#include "far/sequence.h"
#include "far/tree.h"
#include "far/wait.h"
#include "marshal/call.h"
#include "memory/arena.h"
#include "memory/gmem.h"
#include "process/fork.h"
#include "process/fork_image.h"
#include "process/service.h"
#include "process/start.h"
#include "process/threads.h"
#include "procfs/mem.h"
#include "replay/replay.h"
#include "signal/signals.h"
#include "stats/interval.h"
#include "vm/counters.h"
#include "vm/guides.h"
#include "vm/kvm.h"
#include "vm/level.h"
#include "vm/time.h"

/* ---- the host's fork ---- */

/* Flags that vmrun carries out by itself, in the program's terms. */
#define OURS                                                                                     \
        (CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID |        \
         CLONE_CLEAR_SIGHAND)
/* Flags that would part vmrun from itself, or stop it: a table of descriptors that both processes
 * have; a parent that sleeps with all its threads stopped. */
#define NOT_OURS (CLONE_FILES | CLONE_VFORK)

/* fork() with the program's flags.  Does for libc what its own fork() would: the child's thread
 * number and its robust mutexes. */
static long clone_process(uint64_t flags, int *pidfd)
{
        void *tid_at = NULL, *robust = NULL;
        size_t size = 0;

        if (prctl(40 /* PR_GET_TID_ADDRESS */, &tid_at) != 0 ||
            syscall(SYS_get_robust_list, 0, &robust, &size) != 0)
                return -errno;
        flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        long pid = syscall(SYS_clone, flags, NULL, pidfd, tid_at, NULL);
        if (pid == 0)
                syscall(SYS_set_robust_list, robust, size);
        return pid < 0 ? -errno : pid;
}

static long host_fork(const struct clone_request *rq, int *pidfd)
{
        uint64_t flags = (rq->flags & ~(uint64_t)OURS) | (uint64_t)rq->exit_signal;

        if (flags != SIGCHLD)
                return clone_process(flags, pidfd);
        pid_t pid = fork();
        return pid < 0 ? -errno : pid;
}

/* ---- the child ---- */

/* Restores what the program changed since the start, and what vmrun found out at the start. */
static void restore_control(const struct control *from)
{
        struct control *c = CONTROL;

        counters_measure(from->stats_on);
        c->debug = from->debug;
        c->overcommit = from->overcommit;
        c->shadow_paging = from->shadow_paging;
        atomic_store(&c->prefetch_policy, from->prefetch_policy);
        atomic_store(&c->prefetch_window, from->prefetch_window);
        atomic_store(&c->prefetch_history, from->prefetch_history);
        atomic_store(&c->far_off, from->far_off);
        c->far_pages = from->far_pages;
        c->rlimit_as = from->rlimit_as;
        c->rlimit_data = from->rlimit_data;
        c->rlimit_stack = from->rlimit_stack;
        c->rlimit_memlock = from->rlimit_memlock;
        c->mmap_top = from->mmap_top;
        c->mmap_min = from->mmap_min;
        c->service_asleep = 1;          /* its thread is made when the doorbell first rings */
}

static int make_vm(struct thread *t, const struct fork_image *im, char *why, size_t n)
{
        struct vm *vm = t->vm;
        const struct thread was = *t;
        const struct vm_config c = { .nframes = im->control->nframes,
                                     .far_pages = im->control->far_pages,
                                     .profile = opt.profile,
                                     .parent = im->control };

        int err = vm_renew(vm, why, n);
        if (!err)
                err = vm_make_ram(vm, &c, why, n);
        if (err)
                return err;
        restore_control(im->control);
        err = arena_forked(vm);
        if (err) {
                snprintf(why, n, "KVM does not take the shared mappings of the parent: %s",
                         strerror(-err));
                return err;
        }
        *t = (struct thread){ .signal = was.signal, .sighand = was.sighand, .alive = true };
        return vcpu_start_known(vm, t, why, n);
}

/* The record of the child's thread, in the program's terms: the state that the host kernel's fork
 * gives a child. */
static void settle(struct thread *t, const struct clone_request *rq)
{
        const int32_t tid = t->tid;

        t->clear_tid = rq->flags & CLONE_CHILD_CLEARTID ? rq->child_tid : 0;
        vcpu_fixed(t->v)->robust_list = 0;
        if (rq->flags & CLONE_CLEAR_SIGHAND)
                signals_clear(t);
        if (t->pid == 1)                /* init of a PID namespace: signals act differently there */
                signals_process_start(t);
        if (rq->flags & CLONE_CHILD_SETTID)
                /* a bad address is ignored, as on Linux */
                gmem_write(t, rq->child_tid, &tid, sizeof(tid));
        /* kern, which has just started, does not wait for the end of a system call */
        t->v->regs.rax = 0;
        if (rq->stack)
                t->v->regs.rsp = rq->stack;
}

static void be_child(struct thread *t, const struct clone_request *rq, struct fork_image *im,
                     const struct tree_child *c)
{
        char why[512] = "";

        privfd_forked();                /* before the first new descriptor */
        own_threads_forked();
        far_forked(c);
        service_forked();
        procfs_mem_forked();
        replay_forked();
        if (make_vm(t, im, why, sizeof(why)) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        threads_forked(t);
        threads_count_cpus();
        time_init(t);
        wait_first();
        if (rq->flags & CLONE_SETTLS)
                im->state.fs = rq->tls;
        int err = fork_image_put(im, t);
        if (err)
                die_(EXIT_VMRUN_FAILED, "a child cannot be given its memory: %s", strerror(-err));
        fork_image_free(im);
        guide_watch_forked();
        stats_forked();
        ctl_forked(t->vm);
        settle(t, rq);
}

/* ---- the parent ---- */

/* Stores clone()'s results for the parent.  Like Linux, it reports no error if they cannot be
 * stored. */
static void tell_parent(struct thread *t, const struct clone_request *rq, int32_t pid, int pidfd)
{
        if (rq->flags & CLONE_PARENT_SETTID)
                gmem_write(t, rq->parent_tid, &pid, sizeof(pid));
        if (rq->flags & CLONE_PIDFD)
                gmem_write(t, rq->pidfd, &pidfd, sizeof(pidfd));
}

/* Without -v too: programs seldom say why they could not fork.  Called while all but this thread is
 * quiesced. */
static void say_no_room(void)
{
        static bool said;

        if (!said)
                warnx_("fork is refused (ENOMEM): pages can neither be written to far memory nor "
                       "be copied: give a larger --node");
        said = true;
}

/* Called while all but this thread is quiesced. */
static long fork_still(struct thread *t, const struct clone_request *rq, int *pidfd)
{
        struct fork_image im = { 0 };
        struct tree_child child;

        long pid = far_expect_child(t->vm, &child);
        if (pid == -ENOSYS)
                info_once(0x70008, "fork is not supported without /proc: mount it before vmrun "
                                   "starts: ENOSYS");
        if (pid)
                return pid;
        far_hold_background();
        pid = fork_image_take(&im, t, slabs_tree(), &child);
        far_hold();
        stats_hold();
        if (pid == 0)
                pid = host_fork(rq, pidfd);
        else if (pid == -ENOMEM)
                say_no_room();
        if (pid == 0) {
                be_child(t, rq, &im, &child);
                return 0;
        }
        stats_release();
        far_release();
        fork_image_free(&im);
        tree_child_left(&child);
        return pid;
}

static long refuse(uint64_t flags)
{
        if (flags & NOT_OURS) {
                info_once(0x70004,
                          "clone of a process with flags %#llx (CLONE_FILES, CLONE_VFORK) is not "
                          "supported: ENOSYS",
                          (unsigned long long)(flags & NOT_OURS));
                return -ENOSYS;
        }
        const struct far_node *n = far_cannot_fork();
        if (n) {
                info_once(0x70005, "fork is not supported with the node %s yet: ENOSYS", n->url);
                return -ENOSYS;
        }
        return 0;
}

long fork_process(struct thread *t, const struct clone_request *rq)
{
        int pidfd = -1;

        long pid = refuse(rq->flags);
        if (pid)
                return pid;

        /* In the child, too: no signal may come while it is half made. */
        uint64_t mask = signals_hold(t);
        pid = sys_put_off ? -SYS_PUT_OFF : 0;
        if (pid == 0) {
                threads_stop(t);
                ctl_hold();
                service_hold(0);
                pid = fork_still(t, rq, &pidfd);
                service_release();
                if (pid != 0) {
                        ctl_release();
                        threads_go();
                }
        }
        if (pid > 0)
                tell_parent(t, rq, (int32_t)pid, pidfd);
        signals_release(t, mask);
        return pid;
}
