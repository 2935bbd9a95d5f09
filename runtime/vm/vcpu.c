/*
 * Running a vCPU: KVM_RUN until kern makes an exit, kicks, and ends of the program that kern does
 * not cause.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <guest_ram.h>
#include "abi_image.h"
#include "base/message.h"
#include "vm/dump.h"
#include "vm/vcpu.h"
#include "vm/vcpu_setup.h"
#include "vm/watch.h"
#include "x86.h"

_Thread_local struct thread *thread_self;
_Thread_local _Atomic uint32_t sys_put_off;

static const struct kern_header *kern(void) { return (const struct kern_header *)WINDOW; }

void *kern_pointer(struct thread *t, uint64_t va, uint64_t len)
{
        uint64_t bounce = (uint64_t)frame_host((uint32_t)CONTROL->nframes),
                 bounces = bounce_pages(CONTROL->nframes) * PAGE_SIZE;

        if (va >= VCPU_SELF && va < WINDOW)
                return len <= WINDOW - va ? (char *)t->v + (va - VCPU_SELF) : NULL;
        if (va >= bounce && va < bounce + bounces && len <= bounce + bounces - va)
                return (void *)va;
        return va >= WINDOW && va < WINDOW + CONTROL->pool_end &&
                               len <= WINDOW + CONTROL->pool_end - va
                       ? (void *)va
                       : NULL;
}

/*
 * ---- kicks: what makes KVM_RUN return ----
 *
 * The program may use this signal, too, so it is open or blocked as the program has it; only inside
 * KVM_RUN it is always open.  A kick must not arrive after KVM_RUN, because it would interrupt a
 * system call of the program.  [I] A sender counts itself in first (full barrier), then sends only
 * if it sees OPEN.  The thread that runs the vCPU clears OPEN (full barrier), then waits for the
 * senders and takes what they have sent off the queue.
 */
#define KICK_OPEN   1u
#define KICK_SENT   2u                  /* a sender was here, whether it saw OPEN or not */
#define KICK_SENDER 4u                  /* unit of the count of senders */

static uint64_t kick_mask(void) { return 1ull << (KICK_SIGNAL - 1); }

/* The timer of a parked signal: see park(). */
static bool is_parked_long(struct thread *t, const siginfo_t *info)
{
        return info->si_code == SI_TIMER && info->si_value.sival_ptr == &t->parked;
}

bool vcpu_is_kick(struct thread *t, const siginfo_t *info)
{
        /* If the host has no memory for the siginfo, a signal has only its number. */
        bool bare = info->si_code == SI_USER && info->si_pid == 0;
        if (info->si_code == SI_TIMER && info->si_value.sival_ptr == &t->watch)
                return true;            /* watch.c */
        if (is_parked_long(t, info))
                return true;
        return info->si_code == KICK_CODE || (bare && (atomic_load(&t->kick) & ~KICK_OPEN));
}

void vcpu_kick(struct thread *t)
{
        siginfo_t info = { .si_signo = KICK_SIGNAL, .si_code = KICK_CODE };

        if (thread_self && thread_self->apart) {
                t->vm->calls->kick(t);
                return;
        }
        if (atomic_fetch_add(&t->kick, KICK_SENDER) & KICK_OPEN)
                syscall(SYS_rt_tgsigqueueinfo, t->kick_pid, t->kick_tid, KICK_SIGNAL, &info);
        uint32_t k = atomic_fetch_or(&t->kick, KICK_SENT) | KICK_SENT;
        while (k >= KICK_SENDER && !atomic_compare_exchange_weak(&t->kick, &k, k - KICK_SENDER))
                ;
}

/* Each sender is only a few instructions from done, unless it was a child of vfork and was killed
 * or stopped there: hence the bound. */
static void wait_for_senders(struct thread *t)
{
        const struct timespec ms = { .tv_nsec = 1000000 };

        for (int i = 0; atomic_load(&t->kick) >= KICK_SENDER; i++) {
                if (i < 100)
                        sched_yield();
                else if (i < 200)
                        nanosleep(&ms, NULL);
                else
                        atomic_fetch_and(&t->kick, KICK_SENDER - 1);
        }
}

/* Puts the signal back: for this thread, or for any thread of the program that has it open. */
static void give_back(struct thread *t, siginfo_t *info, bool here)
{
        if (here || info->si_code == SI_TKILL)
                syscall(SYS_rt_tgsigqueueinfo, t->pid, t->tid, KICK_SIGNAL, info);
        else if (syscall(SYS_rt_sigqueueinfo, t->pid, KICK_SIGNAL, info) != 0)
                /* only the leader may name another sender */
                syscall(SYS_kill, t->pid, KICK_SIGNAL);
}

/* The other threads have this long to take a signal that was given back. */
static void let_others(void)
{
        const struct timespec ms = { .tv_nsec = 1000000 };
        nanosleep(&ms, NULL);
}

/* Another thread may begin to wait for a parked signal later, while this thread computes without
 * end.  So the signal is offered to the others again at this interval. */
#define PARKED_MS 50

static void park(struct thread *t, const siginfo_t *info)
{
        const struct timespec interval = { .tv_nsec = PARKED_MS * 1000000l };
        const struct itimerspec every = { interval, interval };
        struct sigevent e = { .sigev_notify = SIGEV_THREAD_ID,
                              .sigev_signo = KICK_SIGNAL,
                              .sigev_value.sival_ptr = &t->parked };

        t->parked = *info;
        if (t->has_parked_timer)
                return;
        e._sigev_un._tid = (pid_t)syscall(SYS_gettid);
        /* Without a timer (RLIMIT_SIGPENDING) the signal waits for the next exit. */
        t->has_parked_timer =
                syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &t->parked_timer) == 0;
        if (t->has_parked_timer)
                syscall(SYS_timer_settime, t->parked_timer, 0, &every, NULL);
}

/* Takes the kick signals off the queue; a signal of the program itself goes to `own`.  True if the
 * timer of a parked signal was among them. */
static bool take_all(struct thread *t, siginfo_t *own)
{
        const uint64_t kick = kick_mask();
        const struct timespec now = { 0 };
        bool parked_long = false;
        siginfo_t info;

        while (syscall(SYS_rt_sigtimedwait, &kick, &info, &now, sizeof(kick)) == KICK_SIGNAL) {
                if (!vcpu_is_kick(t, &info))
                        *own = info;
                parked_long = parked_long || is_parked_long(t, &info);
        }
        return parked_long;
}

static void unpark(struct thread *t)
{
        if (t->has_parked_timer) {
                syscall(SYS_timer_delete, t->parked_timer);
                take_all(t, &t->parked);        /* the timer's signal, if it came just now */
        }
        t->has_parked_timer = false;
        give_back(t, &t->parked, false);
        t->parked.si_signo = 0;
}

/*
 * The program's own signal came with the kicks.  If this thread blocks it, it would interrupt each
 * KVM_RUN at once, so it is parked until the next exit.  But first the other threads get a chance
 * to take it.
 */
static void put_off(struct thread *t, siginfo_t *info, bool blocked)
{
        if (blocked && (t->bounced || sys_put_off)) {
                park(t, info);
                return;
        }
        t->bounced = blocked;
        give_back(t, info, !blocked);
        if (blocked)
                let_others();
}

/* Takes what was sent off the queue.  No signal is delivered meanwhile, so a mask that `take`
 * (signal/signals.c) sets stays. */
static void kicked(struct thread *t)
{
        const uint64_t kick = kick_mask(), all = ~0ull;
        siginfo_t own = { .si_signo = 0 };
        uint64_t mask;

        wait_for_senders(t);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof(mask));
        bool parked_long = take_all(t, &own);
        if (own.si_signo) {
                put_off(t, &own, mask & kick);
        } else if (parked_long && t->parked.si_signo && !sys_put_off) {
                unpark(t);
                let_others();
        }
        atomic_fetch_and(&t->kick, ~KICK_SENT);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* KVM_RUN, during which kicks may come.  It is skipped if a kick came before. */
static int run_guest(struct thread *t)
{
        int ret = -1, err = EINTR;

        t->running = true;
        if (atomic_fetch_or(&t->kick, KICK_OPEN) == 0) {
                ret = ioctl(t->vcpu_fd, KVM_RUN, 0);
                err = errno;
        }
        t->running = false;
        /* Interrupted, but not by a signal that was taken (that sets immediate_exit): a signal that
         * the program blocks is in the queue. */
        bool unexplained = ret < 0 && err == EINTR && !t->run->immediate_exit;
        if (atomic_fetch_and(&t->kick, ~KICK_OPEN) != KICK_OPEN || unexplained)
                kicked(t);
        errno = err;
        return ret;
}

static uint64_t deadly(struct thread *t) { return t->vm->calls ? t->vm->calls->deadly(t) : 0; }

/* KVM_RUN was interrupted, maybe by a signal that may end the program: if so, lets it. */
static void let_end(struct thread *t)
{
        uint64_t open = deadly(t), mask;

        if (!open)
                return;
        syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &open, &mask, sizeof(mask));
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* Inside KVM_RUN this thread's mask is the program's, with the kick signal open.  (vmrun's own
 * threads are not kicked.) */
static void set_run_mask(struct thread *t)
{
        uint64_t set;
        union {
                struct kvm_signal_mask m;
                char room[sizeof(struct kvm_signal_mask) + sizeof(set)];
        } u = { .m.len = sizeof(set) };

        /* cleared first: a signal taken from here on sets it again (signal/signals.c) */
        t->sigmask_dirty = false;
        t->bounced = false;
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &set, sizeof(set));
        set &= ~deadly(t);
        if (thread_self)
                set &= ~kick_mask();
        memcpy(u.m.sigset, &set, sizeof(set));
        if (ioctl(t->vcpu_fd, KVM_SET_SIGNAL_MASK, &u.m) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM_SET_SIGNAL_MASK: %s", strerror(errno));
}

/* Processor time after which an entered guest has certainly taken a pending exception. */
#define SOFT_NS 5000000

static int64_t thread_cpu_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/*
 * At p = 3 KVM itself injects the exception of an int3 or into, with RIP behind it. All that it
 * tells of it is the number, which stays there for long: so the code decides. The exception is lost
 * if the kick goes to kern instead, and kicks may come several times before the guest is entered.
 * But code may look like this without a kick that waits: the thread that kicks does so again, until
 * SOFT_NS are over.
 */
static bool soft_exception_queued(struct thread *t, unsigned nr)
{
        struct kvm_regs r;

        if (t->vm->level != 3 || (nr != 3 && nr != 4) || ioctl(t->vcpu_fd, KVM_GET_REGS, &r) < 0)
                return false;
        int last = t->vm->calls->peek(t, r.rip - 1);
        if (!(nr == 3 && last == 0xcc) &&
            !(last == (int)nr && t->vm->calls->peek(t, r.rip - 2) == 0xcd)) {
                t->soft.rip = 0;
                return false;
        }
        if (t->soft.rip != r.rip) {
                t->soft.rip = r.rip;
                t->soft.cpu_ns = thread_cpu_ns();
        }
        return thread_cpu_ns() - t->soft.cpu_ns < SOFT_NS;
}

/* Does KVM have an exception pending for the guest?  Then the vCPU enters kern anyway, which sees
 * the kick itself. */
static bool exception_queued(struct thread *t)
{
        struct kvm_vcpu_events e;
        return ioctl(t->vcpu_fd, KVM_GET_VCPU_EVENTS, &e) < 0 || e.exception.injected ||
               e.exception.pending || soft_exception_queued(t, e.exception.nr);
}

/* A locked access across two cache lines, on a host where that is fatal (split_lock_detect).  KVM
 * has then also sent this thread SIGBUS: see signals_drop_forced(). */
static bool is_split_lock(const struct kvm_run *run)
{
        return run->exit_reason == KVM_EXIT_EXCEPTION && run->ex.exception == VEC_AC;
}

static bool in_kern(uint64_t rip) { return rip - WINDOW < CONTROL_OFF; }

/* A kicked vCPU that was running the program continues at kern's event entry.  A vCPU that is on
 * its way back to the program goes back to its check for events. */
static void redirect_to_kern(struct thread *t)
{
        const struct kern_header *h = kern();
        struct vcpu *v = t->v;
        struct kvm_regs r;

        if (atomic_load(&v->mode) != MODE_PROGRAM || exception_queued(t))
                return;
        if (ioctl(t->vcpu_fd, KVM_GET_REGS, &r) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM_GET_REGS: %s", strerror(errno));
        if (in_kern(r.rip)) {
                int i = r.rip >= h->look[0] && r.rip < h->look_end[0] ? 0 :
                        r.rip >= h->look[1] && r.rip < h->look_end[1] ? 1 : -1;
                if (i < 0)
                        return;         /* in kern: it will check for events itself */
                r.rip = h->look[i];
        } else {
                v->regs.rip = r.rip;
                v->regs.rsp = r.rsp;
                v->regs.rflags = r.rflags;
                r.rip = h->event;
                r.rsp = VCPU_SELF + VCPU_STACK_TOP;
        }
        /* kern's C code must not run with the program's flags: the popfq of a return may have set
         * DF or NT already. */
        r.rflags = RFLAGS_KERN;
        if (ioctl(t->vcpu_fd, KVM_SET_REGS, &r) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM_SET_REGS: %s", strerror(errno));
}

/*
 * Did program code cause this KVM exit, by an instruction that only a kernel may execute, or by a
 * split lock?  With RIP in kern's image it did not: then the page tables are wrong, or the program
 * has jumped there, and the exit would repeat for ever.
 */
static bool program_misbehaved(struct thread *t)
{
        struct kvm_regs r;

        if (atomic_load(&t->v->mode) != MODE_PROGRAM || ioctl(t->vcpu_fd, KVM_GET_REGS, &r) < 0 ||
            in_kern(r.rip))
                return false;
        switch (t->run->exit_reason) {
        case KVM_EXIT_IO: case KVM_EXIT_HLT: case KVM_EXIT_MMIO: case KVM_EXIT_INTERNAL_ERROR:
                return true;
        case KVM_EXIT_EXCEPTION:
                return is_split_lock(t->run);
        /* for example after lidt; on VMX the registers survive it */
        case KVM_EXIT_SHUTDOWN: case KVM_EXIT_FAIL_ENTRY:
                return vcpu_mend(t);
        default:
                return false;
        }
}

/* On Linux the instruction faults, with RIP at it.  Here it is handled like a kick, so that its
 * signal finds the registers in v->regs.  If KVM emulates I/O, RIP is behind the instruction: see
 * trapped_io(). */
static void privileged_instruction(struct thread *t)
{
        struct kvm_regs at;
        const uint32_t reason = t->run->exit_reason;
        bool halted = reason == KVM_EXIT_HLT;      /* KVM has stepped over it */

        if (ioctl(t->vcpu_fd, KVM_GET_REGS, &at) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM_GET_REGS: %s", strerror(errno));
        /* KVM finishes an I/O instruction before it lets registers be changed */
        t->run->immediate_exit = 1;
        ioctl(t->vcpu_fd, KVM_RUN, 0);
        t->run->immediate_exit = 0;
        at.rip -= halted;
        ioctl(t->vcpu_fd, KVM_SET_REGS, &at);   /* all registers: an IN has changed RAX */
        /* an access to memory that does not exist: after a `mov` to CR3 */
        vcpu_mend(t);
        t->privileged = reason;         /* KVM_RUN has changed t->run->exit_reason */
        atomic_fetch_or(&t->v->event, EVENT_HOST | EVENT_PRIVILEGED);
        redirect_to_kern(t);
}

/* Has the program written over words that only kern and vmrun write? */
static void look_at_canaries(struct thread *t)
{
        const struct vcpu *v = t->v;
        const struct control *k = CONTROL;
        const char *where = v->canary0 != CANARY || v->canary1 != CANARY || v->canary2 != CANARY ||
                                            v->canary3 != CANARY || v->canary4 != CANARY ||
                                            v->frames.free.n > FRAME_BATCH * 2
                                    ? "its vCPU's state"
                            : k->canary0 != CANARY || k->canary1 != CANARY ||
                                            k->canary2 != CANARY || k->canary3 != CANARY ||
                                            k->canary4 != CANARY || k->canary5 != CANARY
                                    ? "the control page"
                                    : NULL;
        if (!where)
                return;
        vcpu_dump(t);
        die_(EXIT_VMRUN_FAILED,
             "the virtual machine was stopped: the program may have written into kern's memory, "
             "over %s: look for a "
             "stray pointer into %#llx-%#llx, which is vmrun's",
             where, (unsigned long long)VCPU_SELF, (unsigned long long)WINDOW_END);
}

static const char *exit_reason_text(const struct kvm_run *run)
{
        if (is_split_lock(run))
                return "a split lock, which is not the program's, on a host where that is fatal: "
                       "boot the host with split_lock_detect=warn";
        switch (run->exit_reason) {
        case KVM_EXIT_SHUTDOWN: return "triple fault";
        case KVM_EXIT_INTERNAL_ERROR:
                return run->internal.suberror == 1 ? "KVM could not emulate an instruction"
                                                   : "KVM internal error";
        case KVM_EXIT_FAIL_ENTRY: return "the CPU refused the guest's state";
        case KVM_EXIT_MMIO: return "access to guest-physical memory that does not exist";
        default: return "unexpected exit";
        }
}

static _Noreturn void state_makes_no_sense(struct thread *t)
{
        vcpu_dump(t);
        die_(EXIT_VMRUN_FAILED, "the virtual machine stopped: %s (KVM exit reason %u); " VM_BLAME,
             exit_reason_text(t->run), t->run->exit_reason);
}

void vcpu_forget_exception(struct thread *t)
{
        struct kvm_vcpu_events e;

        if (ioctl(t->vcpu_fd, KVM_GET_VCPU_EVENTS, &e) == 0) {
                e.exception.injected = e.exception.pending = e.exception.nr = 0;
                ioctl(t->vcpu_fd, KVM_SET_VCPU_EVENTS, &e);
        }
}

/* A signal for the program waits until kern makes an exit.  If kern does not: did the program cause
 * that? */
static void watch(struct thread *t)
{
        if (!sys_put_off)
                return;
        if (!t->watch.seen_ms) {
                /* else kern continues from an exit: see watch_exits() */
                if (!mode_is_out(atomic_load(&t->v->mode)))
                        watch_begin(t);
        } else if (atomic_load(&t->v->mode) == MODE_PROGRAM && vcpu_mend(t)) {
                vcpu_forget_exception(t);       /* it belonged to the old tables */
                t->privileged = KVM_EXIT_INTERNAL_ERROR;
        } else if (watch_is_over(t)) {
                vcpu_dump(t);
                die_(EXIT_VMRUN_FAILED,
                     "the virtual machine was stopped: for %llu s kern has not let the program "
                     "have a signal; " VM_BLAME,
                     (unsigned long long)watch_limit_ms() / 1000);
        }
}

#define EXITS_UNWATCHED 64              /* more than a system call or a fault normally makes */

/* Like watch_begin() for a guest that does not exit: here kern exits again and again. */
static void watch_exits(struct thread *t)
{
        if (sys_put_off && t->watch.exits++ == EXITS_UNWATCHED)
                watch_begin(t);
}

/* KVM_RUN was interrupted.  immediate_exit comes first, before anything else is looked at: a signal
 * that is taken later sets it again. */
static void interrupted(struct thread *t)
{
        t->run->immediate_exit = 0;
        let_end(t);
}

/* The thread of a child of fork may have signals already, SIGSTKFLT among them. */
int vcpu_try_run(struct thread *t)
{
        int err;

        do {
                if (t->sigmask_dirty)
                        set_run_mask(t);
                err = run_guest(t) < 0 ? errno : 0;
                if (err == EINTR)
                        interrupted(t);
        } while (err == EINTR || err == EAGAIN);
        if (t->parked.si_signo)
                unpark(t);
        if (err)
                return -err;
        return t->run->exit_reason == KVM_EXIT_IO && t->run->io.port == EXIT_PORT ? 0 : -EIO;
}

static void run_to_exit(struct thread *t)
{
        for (;;) {
                if (t->sigmask_dirty)
                        set_run_mask(t);
                int ret = run_guest(t);
                if (ret < 0) {
                        if (errno == EINTR) {
                                interrupted(t);
                                watch(t);
                                redirect_to_kern(t);
                        } else if (errno == EFAULT && atomic_load(&t->v->mode) == MODE_PROGRAM) {
                                t->arena_fault = true;
                                atomic_fetch_or(&t->v->event, EVENT_HOST);
                                redirect_to_kern(t);
                        } else if (errno != EAGAIN) {
                                vcpu_dump(t);
                                die_(EXIT_VMRUN_FAILED, "KVM_RUN: %s", strerror(errno));
                        }
                        continue;
                }
                t->soft.rip = 0;
                /* kern stores MODE_OUT before each of its exits; an OUT of the program to that port
                 * comes in mode PROGRAM. */
                if (t->run->exit_reason == KVM_EXIT_IO && t->run->io.port == EXIT_PORT &&
                    mode_is_out(atomic_load(&t->v->mode))) {
                        look_at_canaries(t);
                        watch_exits(t);
                        return;
                }
                if (!program_misbehaved(t))
                        state_makes_no_sense(t);
                privileged_instruction(t);
        }
}

void vcpu_run(struct thread *t)
{
        run_to_exit(t);
        if (t->parked.si_signo)
                unpark(t);
}

/* Release: a thread that reads EXIT_NONE also reads the answer. */
void thread_answer(struct thread *t, int64_t ret)
{
        t->v->exit.ret = ret;
        __atomic_store_n(&t->v->exit.op, EXIT_NONE, __ATOMIC_RELEASE);
}

int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        t->v->upcall = (struct upcall){ .op = op, .a = { a0, a1, a2 } };
        for (;;) {
                vcpu_run(t);
                if (t->v->exit.op == EXIT_UPCALL_DONE)
                        return t->v->upcall.ret;
                /* kern needs something for the upcall: a page of a file, a frame */
                thread_answer(t, t->vm->calls->serve(t));
        }
}

void thread_loop(struct thread *t)
{
        while (!t->end.how) {
                vcpu_run(t);
                thread_answer(t, t->vm->calls->serve(t));
        }
}

void vcpu_redirect(struct thread *t)
{
        vcpu_retire(t);
        redirect_to_kern(t);
}
