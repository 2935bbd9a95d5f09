/*
 * The start of a thread of the program: a copy of its parent's vCPU, and a host thread to run it.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/message.h"
#include "base/word.h"
#include "marshal/call.h"
#include "memory/gmem.h"
#include "process/end.h"
#include "process/start.h"
#include "process/threads.h"
#include "signal/signals.h"
#include "vm/time.h"
#include "vm/vcpu.h"
#include "vm/vcpu_setup.h"
#include "vm/xstate.h"

/* Of a host thread. System calls keep large buffers in scratch memory. */
#define STACK_SIZE   (256ul << 10)

struct start {
        struct thread *t;
        const struct clone_request *rq;
        uint64_t mask;                  /* the program's */
        pid_t tid;
        /* futex: the new thread runs and has stored its tid where rq wants it */
        _Atomic uint32_t up;
};

/* Sets the vCPU up as a copy of its parent's at the return of the system call. */
static int copy_state(struct thread *t, struct thread *child, const struct clone_request *rq)
{
        struct kvm_sregs s;
        int err = vcpu_reset(child, ROLE_PROGRAM);

        if (err)
                return err;
        if (ioctl(t->vcpu_fd, KVM_GET_SREGS, &s) < 0)
                return -errno;
        vcpu_fixed(child->v)->fs_base = rq->flags & CLONE_SETTLS ? rq->tls : s.fs.base;
        vcpu_fixed(child->v)->gs_base = s.gs.base;
        struct regs *r = &child->v->regs;
        *r = t->v->regs;
        r->rax = 0;
        r->rcx = r->rip;                /* as SYSCALL leaves rcx and r11 */
        r->r11 = r->rflags;
        if (rq->stack)
                r->rsp = rq->stack;
        xstate_copy(t, child);
        return 0;
}

static void *thread_main(void *arg)
{
        struct start *s = arg;
        struct thread *t = s->t;
        const struct clone_request rq = *s->rq;
        uint64_t mask = s->mask;
        pid_t tid = (pid_t)syscall(SYS_gettid);

        t->tid = tid;
        t->kick_tid = tid;
        vcpu_fixed(t->v)->tid = (uint32_t)tid;
        vcpu_fixed(t->v)->pid = (uint32_t)t->pid;
        t->clear_tid = rq.flags & CLONE_CHILD_CLEARTID ? rq.child_tid : 0;
        vcpu_fixed(t->v)->robust_list = 0;
        signals_thread_start(t);
        t->sigmask_dirty = true;
        vcpu_run(t);                    /* to EXIT_READY */
        time_check(t);
        /* A bad address is not an error, on Linux too. */
        if (rq.flags & CLONE_PARENT_SETTID)
                gmem_write(t, rq.parent_tid, &tid, sizeof(tid));
        if (rq.flags & CLONE_CHILD_SETTID)
                gmem_write(t, rq.child_tid, &tid, sizeof(tid));
        s->tid = tid;
        atomic_store(&s->up, 1);        /* s may be gone from here on */
        word_wake(&s->up, 1);
        signals_release(t, mask);
        thread_answer(t, 0);
        thread_loop(t);
        thread_finish(t);
        return NULL;
}

/* Once, and without -v: the program seldom says why. */
static void say_no_host_thread(int err)
{
        static atomic_flag said = ATOMIC_FLAG_INIT;     /* orders nothing */

        if (!atomic_flag_test_and_set(&said))
                warnx_("no more threads: this host makes none (%s): raise `ulimit -u` or pids.max "
                       "of the control group, or free memory", strerror(-err));
}

static int start_host_thread(struct start *s)
{
        pthread_attr_t a;
        pthread_t id;

        pthread_attr_init(&a);
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&a, STACK_SIZE);
        int err = pthread_create(&id, &a, thread_main, s);
        pthread_attr_destroy(&a);
        if (err == EAGAIN || err == ENOMEM)
                say_no_host_thread(-err);
        return -err;
}

long threads_make(struct thread *t, const struct clone_request *rq)
{
        struct start s = { .rq = rq };

        s.mask = signals_hold(t);       /* the new thread begins with all signals blocked */
        if (sys_put_off) {
                signals_release(t, s.mask);
                return -SYS_PUT_OFF;
        }
        long ret = -EAGAIN;
        s.t = threads_take_vcpu();
        if (s.t) {
                s.t->pid = t->pid;
                s.t->kick_pid = t->kick_pid;
                ret = copy_state(t, s.t, rq);
                if (ret == 0)
                        ret = start_host_thread(&s);
                if (ret)
                        threads_return_vcpu(s.t);
        }
        if (ret == 0) {
                while (!atomic_load(&s.up))
                        word_sleep(&s.up, 0, NULL);      /* the new thread only has to start */
                ret = s.tid;
        }
        signals_release(t, s.mask);
        return ret;
}
