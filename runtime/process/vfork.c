/*
 * vfork (vfork.h), and with it posix_spawn.
 *
 * The child is a process of the host that shares this address space (CLONE_VM), so the kernel
 * itself handles pid, wait, groups and descriptors.  The parent's thread does nothing else until
 * the child is done, so the thread's vCPU is free: the child runs on it, in the parent's VM.  KVM
 * allows that, because a VM belongs to an mm, not to a process.  So only the process is made.  The
 * child also uses its parent's host thread-local storage, and has a copy of the dispositions, which
 * are not shared.
 *
 * The child may be killed between any two instructions.  So the child asks the parent's thread, the
 * lender, to change the VM or to take a lock (vfork_ask): the lender does it once and to its end.
 * That is why the lender waits in lend() and not in the kernel (CLONE_VFORK).
 *
 * [I] One of the two runs at a time, as they share thread-local storage, malloc's included.  While
 * it waits, a thread makes no call of libc, which might set errno.
 *
 * The parent then finds its vCPU where the child left it: normally in the system call execve or
 * exit, but anywhere if the child was killed.  The parent runs kern up to a place where it holds
 * nothing, and then restores the thread's earlier state.
 */
#include <errno.h>
#include <linux/futex.h>
#include <linux/kvm.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "far/far.h"
#include "base/message.h"
#include "base/privfd.h"
#include "marshal/call.h"
#include "memory/gmem.h"
#include "process/end.h"
#include "process/exec.h"
#include "process/service.h"
#include "process/vfork.h"
#include "procfs/mem.h"
#include "signal/sigframe.h"
#include "signal/signals.h"
#include "vm/vcpu.h"
#include "vm/vcpu_setup.h"
#include "vm/xstate.h"

#define STACK_SIZE  (256ul << 10)

/* Flags for the host's clone.  The others are about memory and registers, which vmrun handles. */
#define HOST_FLAGS                                                                                 \
        (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_PARENT |          \
         CLONE_IO | CLONE_PTRACE | CLONE_UNTRACED | CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWCGROUP |  \
         CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* The thread's state at the system call. */
struct kept {
        struct regs regs;
        uint64_t fs_base, gs_base;
        void *xstate;
        struct thread_signals signal;
        struct sighand *sighand;
        pid_t tid, pid, kick_tid, kick_pid;
        uint64_t clear_tid, robust_list;
        bool vforked;                   /* the caller is itself the child of a vfork */
        struct vfork_lender *lender;
        int next;
};

/* word: a futex.  LENDER_GONE is stored by the kernel, when the child has another memory or has
 * ended (CLONE_CHILD_CLEARTID).  tid: 0 when the lender's thread has ended (libc's; kernel). */
enum { LENDER_GONE, LENDER_LENT, LENDER_ASKED };
struct vfork_lender {
        _Atomic uint32_t word;
        const _Atomic uint32_t *tid;
};

struct child {
        struct vfork_lender lender;
        struct thread *t;
        const struct clone_request *rq;
        int next;
        uint64_t mask;
        struct sighand sighand;
};

static int set_bases(struct thread *t, const uint64_t *fs, const uint64_t *gs)
{
        struct kvm_sregs s;

        if (ioctl(t->vcpu_fd, KVM_GET_SREGS, &s) < 0)
                return -errno;
        s.fs.base = fs ? *fs : s.fs.base;
        s.gs.base = gs ? *gs : s.gs.base;
        return ioctl(t->vcpu_fd, KVM_SET_SREGS, &s) < 0 ? -errno : 0;
}

static int keep(struct thread *t, struct kept *k)
{
        struct kvm_sregs s;

        if (ioctl(t->vcpu_fd, KVM_GET_SREGS, &s) < 0)
                return -errno;
        *k = (struct kept){
                .regs = t->v->regs,
                .fs_base = s.fs.base,
                .gs_base = s.gs.base,
                .xstate = xstate_keep(t),
                .signal = t->signal,
                .sighand = t->sighand,
                .tid = t->tid,
                .pid = t->pid,
                .kick_tid = t->kick_tid,
                .kick_pid = t->kick_pid,
                .clear_tid = t->clear_tid,
                .robust_list = vcpu_fixed(t->v)->robust_list,
                .vforked = t->vforked,
                .lender = t->lender,
                .next = t->next,
        };
        return k->xstate ? 0 : -ENOMEM;
}

static void set_ids(struct thread *t, pid_t tid, pid_t pid)
{
        t->tid = tid;
        t->pid = pid;
        vcpu_fixed(t->v)->tid = (uint32_t)tid;
        vcpu_fixed(t->v)->pid = (uint32_t)pid;
}

static int child_main(void *arg)
{
        struct child *c = arg;
        struct thread *t = c->t;
        const struct clone_request *rq = c->rq;
        pid_t pid = (pid_t)syscall(SYS_getpid);

        if (!(rq->flags & CLONE_FILES))
                privfd_parted();
        set_ids(t, pid, pid);
        t->next = c->next;
        if (!t->kick_tid)       /* not told: the number is equal, unless in a new PID namespace */
                t->kick_tid = pid;
        t->kick_pid = t->kick_tid;
        t->apart = getppid() == 0;      /* the parent has no number in this namespace */
        t->clear_tid = rq->flags & CLONE_CHILD_CLEARTID ? rq->child_tid : 0;
        vcpu_fixed(t->v)->robust_list = 0;
        if (rq->flags & CLONE_CLEAR_SIGHAND)
                signals_clear(t);
        if (rq->flags & CLONE_PARENT_SETTID)
                gmem_write(t, rq->parent_tid, &pid, sizeof(pid));
        if (rq->flags & CLONE_CHILD_SETTID)
                gmem_write(t, rq->child_tid, &pid, sizeof(pid));
        if (rq->stack)
                t->v->regs.rsp = rq->stack;
        signals_release(t, c->mask);
        thread_answer(t, 0);
        /* ends in execve, or by END_CHILD; a child that it forked also returns here, when its first
         * thread ends */
        thread_loop(t);
        thread_finish(t);
        _exit(EXIT_VMRUN_FAILED);       /* not reached */
}

/* Not by libc, and as the kernel's word at the child's end: not private. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen, const struct timespec *limit)
{
        sys_own(__NR_futex, P(word), FUTEX_WAIT, seen, P(limit), 0, 0);
}

static void wake(_Atomic uint32_t *word) { sys_own(__NR_futex, P(word), FUTEX_WAKE, 1, 0, 0, 0); }

/* In the child.  The word is ASKED already where the lender's own thread serves. */
bool vfork_ask(struct thread *t)
{
        const struct timespec tenth = { .tv_nsec = 100000000 };
        struct vfork_lender *l = t->lender;
        uint32_t lent = LENDER_LENT;

        if (!l || !atomic_compare_exchange_strong(&l->word, &lent, LENDER_ASKED))
                return false;
        wake(&l->word);
        while (atomic_load(&l->word) == LENDER_ASKED) {
                if (atomic_load(l->tid) == 0) {         /* its program has ended, or is another */
                        t->lender = NULL;
                        return false;
                }
                sleep_on(&l->word, LENDER_ASKED, &tenth);
        }
        return true;
}

/* In the parent: serves the child's requests until the child is gone.  The child may be killed
 * while it asks. */
static void lend(struct child *c)
{
        _Atomic uint32_t *word = &c->lender.word;
        uint32_t seen;

        while ((seen = atomic_load(word)) != LENDER_GONE) {
                if (seen == LENDER_LENT) {
                        sleep_on(word, seen, NULL);     /* as long as the child takes */
                        continue;
                }
                thread_answer(c->t, c->t->vm->calls->serve(c->t));
                if (atomic_compare_exchange_strong(word, &seen, LENDER_LENT))
                        wake(word);
        }
}

/*
 * Runs the vCPU that the child left up to where kern waits for an answer and holds nothing.  An
 * exit that has no answer is served now; if the child was in the middle of it, then once more.
 * Exits that must not be repeated are served by the lender.
 */
static void settle(struct thread *t)
{
        struct vcpu *v = t->v;
        bool out = mode_is_out(atomic_load(&v->mode));

        /* kern makes an exit before it returns to the program, at the latest */
        atomic_fetch_or(&v->event, EVENT_HOST);
        if (out) {
                /* The host published it, for the child.  In kern it is kern's own: kern is in the
                 * middle of a page table, and takes it back itself. */
                atomic_store(&v->faulting, 0);
        } else {
                vcpu_redirect(t);
                vcpu_run(t);
        }
        for (;;) {
                switch (v->exit.op) {
                case EXIT_SYSCALL: case EXIT_EVENT: case EXIT_SIGNAL:
                        return;
                case EXIT_UPCALL_DONE:  /* in an exit of the child's that is no more */
                        thread_answer(t, -EINTR);
                        break;
                default:
                        thread_answer(t, t->vm->calls->serve(t));
                }
                vcpu_run(t);
        }
}

static void bring_back(struct thread *t, const struct kept *k)
{
        t->run->immediate_exit = 0;
        t->v->upcall.op = UPCALL_NONE;
        atomic_store(&t->kick, 0);      /* the child may have been killed with KICK_OPEN set, */
        t->parked.si_signo = 0;         /* and with parked signals, which were its own */
        t->has_parked_timer = false;
        t->arena_fault = false;
        t->privileged = 0;
        t->soft.rip = 0;
        t->apart = false;
        t->vforked = k->vforked;
        t->lender = k->lender;
        t->next = k->next;
        t->end = (struct thread_end){ .how = END_NOT };         /* this was set for the child */
        exec_room_free(t);
        t->sighand = k->sighand;
        t->clear_tid = k->clear_tid;
        vcpu_fixed(t->v)->robust_list = k->robust_list;
        set_ids(t, k->tid, k->pid);
        t->kick_tid = k->kick_tid;
        t->kick_pid = k->kick_pid;
        sys_put_off = 0;
        t->watch.seen_ms = 0;           /* a timer ended with the child */
        /* KVM has the child's mask.  A signal that it leaves open is blocked here, and would end
         * each KVM_RUN. */
        t->sigmask_dirty = true;
        settle(t);
        /* KVM must finish the exit before registers can be set */
        vcpu_retire(t);
        t->v->regs = k->regs;
        t->signal = k->signal;
        if (set_bases(t, &k->fs_base, &k->gs_base) != 0)
                die_(EXIT_VMRUN_FAILED,
                     "KVM does not take back the registers of a thread whose child has ended");
        xstate_bring_back(t, k->xstate);
        /* All registers are the parent's again; events that came meanwhile must still be
         * handled. */
        atomic_fetch_or(&t->v->event, EVENT_IRET | EVENT_HOST);
}

/*
 * With CLONE_PARENT_SETTID the kernel stores the child's number in this PID namespace before the
 * child runs. clone() has only one argument for that number and a pidfd.
 */
static pid_t make_child(struct child *c, char *stack, uint64_t flags, int *pidfd)
{
        struct thread *t = c->t;
        _Atomic uint32_t *word = &c->lender.word;
        uint64_t args[8] = { flags | CLONE_PARENT_SETTID, P(pidfd), P(word), P(&t->kick_tid),
                             (uint64_t)c->rq->exit_signal, P(stack), STACK_SIZE, 0 };
        register void *fn __asm__("r8") = child_main;
        register void *arg __asm__("r9") = c;
        long ret;

        if (!(flags & CLONE_PIDFD))
                return clone(child_main, stack + STACK_SIZE,
                             (int)(args[0] | (uint64_t)c->rq->exit_signal), c, &t->kick_tid,
                             NULL, word);
        __asm__ volatile("syscall\n\t"
                         "test %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "xor %%ebp, %%ebp\n\t"
                         "mov %%r9, %%rdi\n\t"
                         "call *%%r8\n\t"
                         "hlt\n"
                         "1:"
                         : "=a"(ret)
                         : "a"(SYS_clone3), "D"(args), "S"(sizeof(args)), "r"(fn), "r"(arg)
                         : "rcx", "r11", "memory");
        if (ret == -ENOSYS) {           /* blocked by some containers */
                t->kick_tid = 0;
                return clone(child_main, stack + STACK_SIZE,
                             (int)(flags | (uint64_t)c->rq->exit_signal), c, pidfd, NULL, word);
        }
        errno = ret < 0 ? (int)-ret : 0;
        return ret < 0 ? -1 : (pid_t)ret;
}

/* Sets up t for the child.  Its dispositions are copied here: that takes a lock.  The child of a
 * child asks this lender, too: its own parent may be killed as well. */
static void begin_lending(struct child *c)
{
        struct thread *t = c->t;

        signals_copy(t, &c->sighand);
        atomic_store(&c->lender.word, LENDER_LENT);
        if (!t->vforked && prctl(40 /* PR_GET_TID_ADDRESS */, &c->lender.tid) == 0)
                t->lender = &c->lender;
        t->vforked = true;
}

long vfork_make(struct thread *t, const struct clone_request *rq)
{
        struct child *c = calloc(1, sizeof(*c));
        char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        struct kept k = { .xstate = NULL };
        int next = -1;
        struct privfd_lent lent = { .made = NULL };
        int pidfd = -1;
        long ret = -ENOMEM;

        /* parent and child both block all signals: a signal now stays pending for its addressee */
        uint64_t mask = signals_hold(t);
        if (sys_put_off) {
                ret = -SYS_PUT_OFF;
                goto out;
        }
        if (t->apart) {
                info_once(0x70007, "a vfork by the child of a vfork that is in a PID namespace of "
                                      "its own is not supported: EAGAIN");
                ret = -EAGAIN;
                goto out;
        }
        /* Not for the program of a child's child: if the child is killed, no process gives it
         * back. */
        if (!t->vforked)
                next = far_expect_program();
        /* if the child made the thread, it would belong to the child and end with it */
        service_ensure(t->vm);
        if (!t->vforked)
                procfs_mem_make();      /* if this fails, the child's open fails */
        if (!c || stack == MAP_FAILED || !privfd_vfork(&lent) || (ret = keep(t, &k)) != 0)
                goto out;
        if ((rq->flags & CLONE_SETTLS) && (ret = set_bases(t, &rq->tls, NULL)) != 0)
                goto out;
        c->t = t;
        c->next = next;
        c->rq = rq;
        c->mask = mask;
        begin_lending(c);
        pid_t pid = make_child(c, stack, (rq->flags & HOST_FLAGS) | CLONE_CHILD_CLEARTID, &pidfd);
        ret = pid < 0 ? -errno : pid;
        if (pid > 0)
                lend(c);
        privfd_vforked(&lent);
        lent.made = NULL;
        threads_safe_end(t);              /* if the child died while t was marked safe */
        if (pid < 0) {
                t->kick_tid = k.kick_tid;
                t->sighand = k.sighand;
                t->vforked = k.vforked;
                t->lender = k.lender;
                set_bases(t, &k.fs_base, NULL);
                goto out;
        }
        bring_back(t, &k);
        t->v->regs.rax = (uint64_t)pid; /* in case kern does not use the exit's answer as result */
        k.xstate = NULL;
        if (rq->flags & CLONE_PIDFD)
                gmem_write(t, rq->pidfd, &pidfd, sizeof(pidfd));
out:
        far_expect_end(next);
        if (lent.made)
                privfd_vforked(&lent);
        signals_release(t, mask);
        free(k.xstate);
        free(c);
        if (stack != MAP_FAILED)
                munmap(stack, STACK_SIZE);
        return ret;
}
