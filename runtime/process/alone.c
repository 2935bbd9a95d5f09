/*
 * A process with one thread for a moment, and all of its own threads again.  See alone.h.
 *
 * Guest memory stays in this process.  Only objects of KVM and the host kernel are removed and
 * made again: memory slots (vm_away, vm_back), registers (vcpu_keep, vcpu_bring_back), threads.  No
 * transfer is under way meanwhile, and nodes stay connected.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/own_thread.h"
#include "control/control.h"
#include "far/far.h"
#include "marshal/call.h"
#include "process/alone.h"
#include "process/service.h"
#include "process/threads.h"
#include "signal/signals.h"
#include "stats/interval.h"
#include "vm/guides.h"
#include "vm/level.h"
#include "vm/vcpu_setup.h"

/* From alone_begin(), of which there is one at a time, to alone_end(). */
static struct {
        uint64_t mask;                  /* the program's signal mask */
        struct vcpu_kept **vcpu;        /* by number */
} kept;

/* After unshare or setns of a PID namespace Linux makes children there, but no threads. */
static bool threads_can_be_made(void)
{
        char own[64] = "", next[64] = "";
        ssize_t a = readlink("/proc/thread-self/ns/pid", own, sizeof(own) - 1);
        ssize_t b = readlink("/proc/thread-self/ns/pid_for_children", next, sizeof(next) - 1);

        if (a < 0 || b < 0 || strcmp(own, next) == 0)
                return true;            /* assumed; without /proc this cannot be known */
        info_once(0x70006, "a user or time namespace cannot be entered after unshare or setns "
                              "of a PID namespace, as vmrun could make no "
                              "threads there: EINVAL; enter all at once, or this one first");
        return false;
}

/* A thread that has ended still counts until the kernel has reaped it, a moment later.
 * unshare(CLONE_THREAD) only checks whether the process has one thread, and changes nothing. */
static void wait_for_burial(void)
{
        const struct timespec pause = { .tv_nsec = 200000 };

        for (int tries = 0; tries < 5000 && unshare(CLONE_THREAD) != 0; tries++) /* a second */
                nanosleep(&pause, NULL);
}

static void take_apart(struct vm *vm)
{
        uint32_t n = atomic_load(&CONTROL->nvcpus);

        kept.vcpu = calloc(n, sizeof(*kept.vcpu));
        if (!kept.vcpu)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        for (uint32_t i = 0; i < n; i++)
                if (vm->thread[i])
                        kept.vcpu[i] = vcpu_keep(vm->thread[i]);
        vm_away(vm);
}

static void put_together(struct vm *vm)
{
        char why[256];

        int err = vm_back(vm, why, sizeof(why));
        for (uint32_t i = 0; !err && i < atomic_load(&CONTROL->nvcpus); i++)
                if (vm->thread[i])
                        err = vcpu_bring_back(vm->thread[i], kept.vcpu[i], why, sizeof(why));
        if (err)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        free(kept.vcpu);
        kept.vcpu = NULL;
}

int alone_begin(struct thread *t)
{
        if (t->vforked || !threads_single() || !threads_can_be_made())
                return -EINVAL;
        uint64_t was = signals_hold(t);
        if (sys_put_off) {
                signals_release(t, was);
                return -SYS_PUT_OFF;
        }
        kept.mask = was;
        ctl_rest();
        stats_interval_rest();
        guide_watch_rest();
        /* The cleaner may wait for a page until it is held, and for none after that. */
        service_hold(0);
        far_rest();
        service_end();
        own_threads_rest();
        take_apart(t->vm);
        wait_for_burial();
        return 0;
}

void alone_end(struct thread *t)
{
        put_together(t->vm);
        /* First run: now the VM has its kernel thread, even if none can be made a moment later. */
        vcpu_retire(t);
        service_again();
        far_go_on();
        stats_interval_start();
        guide_watch_go_on();
        ctl_start(t->vm);
        service_release();
        signals_release(t, kept.mask);
}
