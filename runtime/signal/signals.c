/*
 * Signals: dispositions, the host's handler, delivery.  signals.h has the overview, sigframe.c the
 * frames, marshal/call.c the races between signals and system calls.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>
#include "base/options.h"
#include "marshal/call.h"
#include "signal/signals.h"
#include "signal/trapped.h"
#include "vm/vcpu.h"
#include "vm/watch.h"
#include "vm/xstate.h"

static uint64_t bit(int sig) { return 1ull << (sig - 1); }

/* ---- the host's handler ---- */

void signals_thread_start(struct thread *t)
{
        static struct sighand program = { .lock = PTHREAD_MUTEX_INITIALIZER };

        thread_self = t;
        t->sighand = &program;
        t->signal = (struct thread_signals){ .alt.flags = SS_DISABLE };
        t->sigmask_dirty = true;        /* from now on KVM_RUN may be kicked */
}

static bool ignored(const struct ksigaction *k)
{
        return k->handler == (uint64_t)(uintptr_t)SIG_IGN;
}

/* Runs on the thread that gets the signal, whose vCPU does not run now; the kernel holds back all
 * other signals (sa_mask).  All it stores is for this thread alone, so no barrier is needed.  A
 * fault in vmrun itself also comes here: it repeats with its signal blocked, and so ends vmrun. */
static void take(int sig, siginfo_t *info, void *context)
{
        ucontext_t *uc = context;
        greg_t *rip = &uc->uc_mcontext.gregs[REG_RIP];
        uint64_t mask, all = ~0ull;
        struct thread *t = thread_self;

        if (!t)
                return;                 /* one of vmrun's threads, which block all signals */
        if (sig == SYS_SIGKICK && vcpu_is_kick(t, info)) {
                t->run->immediate_exit = 1;     /* if KVM_RUN is still to come */
                return;
        }
        if (sig == SYS_SIGKICK && ignored(&t->sighand->action[sig]))
                return;                 /* our handler is installed only for the kicks */
        memcpy(&t->signal.info, info, sizeof(*info));
        /* The kernel's set is 8 bytes; glibc's would reach into the fields behind it. */
        memcpy(&mask, &uc->uc_sigmask, sizeof(mask));
        memcpy(&uc->uc_sigmask, &all, sizeof(all));
        t->signal.mask = mask;
        sys_put_off = 1;
        t->sigmask_dirty = true;
        atomic_fetch_or(&t->v->event, EVENT_HOST);
        t->run->immediate_exit = 1;     /* if this comes between vcpu_run's last look and KVM_RUN */
        *rip = (greg_t)sys_interrupted((uint64_t)*rip);
}

/* ---- signals that end the program, where it has statistics to print first ---- */

#define END_SECONDS 4   /* threads stop, statistics, and 1 s each for the cleaner and nodes */

/* The default action, by the host kernel, once the handler has returned. */
static void end_at_once(struct thread *t, int sig)
{
        const struct ksigaction dfl = { .handler = 0 };

        sys_own(__NR_rt_sigaction, (uint64_t)sig, P(&dfl), 0, 8, 0, 0);
        sys_own(__NR_tgkill, (uint64_t)t->pid, (uint64_t)t->tid, (uint64_t)sig, 0, 0, 0);
}

/* Sends signal sig again after END_SECONDS.  t's address marks it: signals of the program's timers
 * do not have that address. */
static bool timer_start(struct thread *t, int sig)
{
        struct sigevent e = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig,
                              .sigev_value.sival_ptr = t, ._sigev_un._tid = t->tid };
        const struct itimerspec when = { .it_value.tv_sec = END_SECONDS };
        int *id = &t->signal.timer;

        return sys_own(__NR_timer_create, CLOCK_MONOTONIC, P(&e), P(id), 0, 0, 0) == 0 &&
               sys_own(__NR_timer_settime, (uint64_t)*id, 0, P(&when), 0, 0, 0) == 0;
}

/* The program ends in signals_deliver().  Until then its signal stays open, to end a thread that
 * does not get there (for example because kern waits for a silent node).  Only the timer's signal
 * counts, because timeout(1) and terminals may send a signal several times. */
static void take_last(int sig, siginfo_t *info, void *context)
{
        struct thread *t = thread_self;
        ucontext_t *uc = context;
        const uint64_t others = ~bit(sig);

        if (!t)
                return;
        if (!t->signal.ends) {
                take(sig, info, context);
                /* not sigdelset(), which refuses 32 and 33 */
                memcpy(&uc->uc_sigmask, &others, sizeof(others));
                t->signal.ends = timer_start(t, sig);
                if (!t->signal.ends)
                        end_at_once(t, sig);
        } else if (info->si_code == SI_TIMER && info->si_value.sival_ptr == t) {
                end_at_once(t, sig);
        }
}

/* The signal does not end the program after all. */
static void timer_stop(struct thread *t)
{
        if (t->signal.ends)
                sys_own(__NR_timer_delete, (uint64_t)t->signal.timer, 0, 0, 0, 0, 0);
        t->signal.ends = false;
}

/* Does the default action of sig end t's process, so that its reports must be written first?  Not
 * for process 1 of a container: the kernel drops the signal. */
static bool tells_end(const struct thread *t, int sig)
{
        const uint64_t others = bit(SIGKILL) | bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) |
                                bit(SIGTTOU) | bit(SIGCONT) | bit(SIGCHLD) | bit(SIGURG) |
                                bit(SIGWINCH) | bit(SYS_SIGKICK);

        return options_report(&opt) && t->pid != 1 && !(others & bit(sig));
}

/* ---- dispositions ---- */

#define SA_RESTORER_   0x04000000ull
/* NOCLDSTOP NOCLDWAIT SIGINFO EXPOSE_TAGBITS RESTORER ONSTACK RESTART NODEFER RESETHAND: Linux
 * forgets the others. */
#define FLAGS_KNOWN    0xdc000807ull
/* Flags that the host kernel must know. */
#define FLAGS_MIRRORED ((uint64_t)(SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT))

void signals_restorer(void);
__asm__(".pushsection .text\n"
        ".globl signals_restorer\n"
        ".hidden signals_restorer\n"
        "       nop\n"                  /* unwinders look for the instruction before */
        "signals_restorer:\n"
        "       movq $15, %rax\n"       /* rt_sigreturn; unwinders know these bytes */
        "       syscall\n"
        ".popsection\n");

static bool has_handler(const struct ksigaction *k)
{
        return k->handler > (uint64_t)(uintptr_t)SIG_IGN;
}

/* The child of a vfork gets a copy, as it does of the host's dispositions; t->sighand is restored
 * when its parent continues. */
void signals_copy(struct thread *t, struct sighand *copy)
{
        struct sighand *h = t->sighand;

        pthread_mutex_lock(&h->lock);
        memcpy(copy->action, h->action, sizeof(copy->action));
        memcpy(copy->known, h->known, sizeof(copy->known));
        pthread_mutex_unlock(&h->lock);
        pthread_mutex_init(&copy->lock, NULL);
        t->sighand = copy;
}

/* At the first use a disposition is the host's, with which vmrun was started.  If the host has a
 * handler it is vmrun's own, and the program's disposition is the default. */
static struct ksigaction *lookup(struct sighand *h, int sig)
{
        struct ksigaction *k = &h->action[sig];

        if (!h->known[sig]) {
                h->known[sig] = true;
                if (sys_own(__NR_rt_sigaction, (uint64_t)sig, 0, P(k), 8, 0, 0) || has_handler(k))
                        memset(k, 0, sizeof(*k));
        }
        return k;
}

/*
 * The host's action for a disposition of the program.  A handler blocks all signals (sa_mask) and
 * follows SA_RESTART.  The kick signal needs a handler, whatever its disposition.
 */
static struct ksigaction host_action(const struct thread *t, int sig, const struct ksigaction *k)
{
        bool last = k->handler == 0 && tells_end(t, sig);
        uint64_t flags = k->flags & FLAGS_MIRRORED;

        if (!has_handler(k) && !last && sig != SYS_SIGKICK)
                return (struct ksigaction){ .handler = k->handler, .flags = flags };
        return (struct ksigaction){
                .handler = P(last ? take_last : take), .restorer = P(signals_restorer),
                .flags = SA_SIGINFO | SA_RESTORER_ | (has_handler(k) ? flags : SA_RESTART),
                .mask = ~0ull,
        };
}

/* A disposition of the kick signal without a handler of the program; SIG_IGN drops a pending
 * signal. */
static void set_kick(uint64_t handler)
{
        const struct ksigaction plain = { .handler = handler };

        sys_own(__NR_rt_sigaction, SYS_SIGKICK, P(&plain), 0, 8, 0, 0);
}

long signals_action(struct thread *t, int sig, const struct ksigaction *new, struct ksigaction *old)
{
        long ret = 0;

        pthread_mutex_lock(&t->sighand->lock);
        struct ksigaction *k = lookup(t->sighand, sig);
        if (old)
                *old = *k;
        if (new) {
                const struct ksigaction host = host_action(t, sig, new);
                if (sig == SYS_SIGKICK && ignored(new))
                        set_kick(new->handler);
                /* Not sys_raw(), in which a thread that holds the lock could be stopped. */
                ret = sys_own(__NR_rt_sigaction, (uint64_t)sig, P(&host), 0, 8, 0, 0);
                if (ret == 0) {
                        *k = *new;
                        k->flags &= FLAGS_KNOWN;
                        k->mask &= ~(bit(SIGKILL) | bit(SIGSTOP));
                }
        }
        pthread_mutex_unlock(&t->sighand->lock);
        return ret;
}

void signals_expect_kicks(struct thread *t)
{
        struct ksigaction now;

        if (signals_action(t, SYS_SIGKICK, NULL, &now) == 0)
                signals_action(t, SYS_SIGKICK, &now, NULL);
}

void signals_end_kicks(struct thread *t)
{
        struct ksigaction now;

        if (signals_action(t, SYS_SIGKICK, NULL, &now) == 0)
                set_kick(ignored(&now) ? now.handler : 0);
}

void signals_clear(struct thread *t)
{
        const struct ksigaction dfl = { .handler = 0 };
        struct ksigaction old;

        for (int sig = 1; sig <= SIGNALS_MAX; sig++)
                if (signals_action(t, sig, NULL, &old) == 0 && has_handler(&old))
                        signals_action(t, sig, &dfl, NULL);
}

void signals_process_start(struct thread *t)
{
        struct ksigaction k;

        for (int sig = 1; options_report(&opt) && sig <= SIGNALS_MAX; sig++)
                if (signals_action(t, sig, NULL, &k) == 0 && k.handler == 0)
                        signals_action(t, sig, &k, NULL);
}

/* The disposition for a signal that is delivered now; applies SA_RESETHAND. */
static struct ksigaction action_for_delivery(struct thread *t, int sig)
{
        pthread_mutex_lock(&t->sighand->lock);
        struct ksigaction *k = lookup(t->sighand, sig), now = *k;
        if (has_handler(k) && (k->flags & SA_RESETHAND)) {
                k->handler = 0;
                const struct ksigaction host = host_action(t, sig, k);
                sys_own(__NR_rt_sigaction, (uint64_t)sig, P(&host), 0, 8, 0, 0);
        }
        pthread_mutex_unlock(&t->sighand->lock);
        return now;
}

/* ---- delivery ---- */

uint64_t signals_hold(struct thread *t)
{
        uint64_t mask = 0, all = ~0ull;

        sys_own(__NR_rt_sigprocmask, SIG_SETMASK, P(&all), P(&mask), 8, 0, 0);
        /* for KVM too: upcalls made now must not be interrupted by a signal that stays pending */
        t->sigmask_dirty = true;
        t->signal.held = true;
        /* From here on no signal comes.  If a signal was taken before, the host's mask was full
         * already. */
        t->signal.held_mask = sys_put_off ? t->signal.mask : mask;
        return t->signal.held_mask;
}

static const int people_end_by[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
#define PEOPLE_END_BY (sizeof(people_end_by) / sizeof(people_end_by[0]))

uint64_t signals_deadly(struct thread *t)
{
        uint64_t mask = t->signal.held ? t->signal.held_mask : t->signal.mask, deadly = 0;

        if (!t->signal.held && !sys_put_off)
                return 0;
        pthread_mutex_lock(&t->sighand->lock);
        for (size_t i = 0; i < PEOPLE_END_BY; i++) {
                int sig = people_end_by[i];
                if (lookup(t->sighand, sig)->handler == 0 && !tells_end(t, sig))
                        deadly |= bit(sig);
        }
        pthread_mutex_unlock(&t->sighand->lock);
        return deadly & ~mask;
}

void signals_open_deadly(struct thread *t)
{
        const struct ksigaction dfl = { .handler = 0 };
        uint64_t open = 0;

        for (size_t i = 0; i < PEOPLE_END_BY; i++) {
                int sig = people_end_by[i];
                struct ksigaction k;
                if (signals_action(t, sig, NULL, &k) == 0 &&
                    k.handler != (uint64_t)(uintptr_t)SIG_IGN) {
                        sys_own(__NR_rt_sigaction, (uint64_t)sig, P(&dfl), 0, 8, 0, 0);
                        open |= bit(sig);
                }
        }
        open &= ~(sys_put_off ? t->signal.mask : t->signal.held_mask);
        sys_own(__NR_rt_sigprocmask, SIG_UNBLOCK, P(&open), 0, 8, 0, 0);
        t->sigmask_dirty = true;
}

void signals_release(struct thread *t, uint64_t mask)
{
        mask &= ~(bit(SIGKILL) | bit(SIGSTOP));
        t->signal.held = false;
        /* a signal still waits for its frame: all signals stay blocked until then */
        if (sys_put_off) {
                t->signal.mask = mask;
                return;
        }
        t->sigmask_dirty = true;
        sys_own(__NR_rt_sigprocmask, SIG_SETMASK, P(&mask), 0, 8, 0, 0);
}

/* The program ends by that signal once thread_loop() has returned.  Signals stay blocked. */
static void killed(struct thread *t, int signo, int code, uint64_t addr)
{
        t->end = (struct thread_end){
                .how = END_KILLED, .signo = signo, .code = code, .addr = addr
        };
}

/* Points the program at its handler, which runs with `mask`; rt_sigreturn will set `saved`.
 * Signals are held before, and released here. */
static void run_handler(struct thread *t, const struct ksigaction *k, const siginfo_t *info,
                        uint64_t mask, uint64_t saved)
{
        int sig = info->si_signo;

        if (sigframe_push(t, k, info, saved) == 0) {
                signals_release(t, mask | k->mask | (k->flags & SA_NODEFER ? 0 : bit(sig)));
                return;
        }
        /* No room for the frame is a SIGSEGV, as on Linux; the second time it ends the program. */
        const siginfo_t segv = { .si_signo = SIGSEGV, .si_code = SI_KERNEL };
        const struct ksigaction s =
                sig == SIGSEGV ? (struct ksigaction){ 0 } : action_for_delivery(t, SIGSEGV);
        if (!has_handler(&s) || (mask & bit(SIGSEGV)))
                killed(t, SIGSEGV, SI_KERNEL, 0);
        else
                run_handler(t, &s, &segv, mask, saved);
}

/* Gives a signal back to the kernel: to be delivered later, or to have its default effect. */
static void send_again(struct thread *t, siginfo_t *info)
{
        sys_own(__NR_rt_tgsigqueueinfo, (uint64_t)t->pid, (uint64_t)t->tid,
                (uint64_t)info->si_signo, P(info), 0, 0);
}

void signals_deliver(struct thread *t)
{
        struct thread_signals *s = &t->signal;
        siginfo_t info = s->info;
        uint64_t mask = s->waits ? s->wait_mask : s->mask;

        if (!sys_put_off)
                return;
        sys_put_off = 0;                /* the host thread's mask is still all */
        watch_end(t);
        s->held = true;
        s->held_mask = s->mask;
        s->waits = false;
        if (mask & bit(info.si_signo)) {
                timer_stop(t);
                /* the mask has changed: an exception's handler or rt_sigreturn came first */
                send_again(t, &info);
                signals_release(t, s->mask);
                return;
        }
        const struct ksigaction k = action_for_delivery(t, info.si_signo);
        if (k.handler == 0 && s->ends) {
                killed(t, info.si_signo, info.si_code, 0);
                return;
        }
        timer_stop(t);
        if (has_handler(&k)) {
                run_handler(t, &k, &info, mask, s->mask);
                return;
        }
        if (k.handler == (uint64_t)(uintptr_t)SIG_DFL) {
                if (info.si_signo == SYS_SIGKICK)
                        set_kick(0);
                /* the handler is gone by now: the signal gets its default action */
                send_again(t, &info);
        }
        signals_release(t, s->mask);
}

/* If the program has SIGBUS open, the signal was taken.  Else it waits in the queue, and Linux has
 * made the host's action the default, to force the signal. */
void signals_drop_forced(struct thread *t)
{
        struct thread_signals *s = &t->signal;
        const uint64_t bus = bit(SIGBUS);
        const struct timespec now = { 0 };
        struct ksigaction action;

        if (sys_put_off && s->info.si_signo == SIGBUS && s->info.si_code == BUS_ADRALN) {
                sys_put_off = 0;
                watch_end(t);
                timer_stop(t);
                signals_release(t, s->mask);
                return;
        }
        sys_own(__NR_rt_sigtimedwait, P(&bus), 0, P(&now), sizeof(bus), 0, 0);
        if (signals_action(t, SIGBUS, NULL, &action) == 0)
                signals_action(t, SIGBUS, &action, NULL);
}

static void note_exception(struct thread *t, int vector)
{
        struct thread_signals *s = &t->signal;

        if (vector == SIGNALS_NO_VECTOR)
                return;
        s->trapno = (uint64_t)vector;
        s->err = t->v->regs.err;
        if (vector == 14) {
                /* "from user mode", which the CPU does not set for a program in ring 0 */
                s->err |= 4;
                s->cr2 = t->v->cr2;
                /* Linux does not show whether anything is mapped there; 8: kern/paging/fault.c */
                if (s->cr2 >= TASK_SIZE)
                        s->err = (s->err | 1) & ~8ull;
        }
}

void signals_fault(struct thread *t, int signo, int code, uint64_t addr, int vector)
{
        uint64_t mask = signals_hold(t);
        struct trapped x = { .signo = signo, .code = code, .addr = addr, .vector = vector };

        if (vector == 3 || vector == 4)
                /* KVM would still show the number of an int3 or into */
                vcpu_forget_exception(t);
        if (vector != SIGNALS_NO_VECTOR && trapped_as_on_linux(t, &x)) {
                signals_release(t, mask);
                return;
        }
        note_exception(t, x.vector);
        if (x.vector == 16 || x.vector == 19)
                x.code = xstate_fpe_code(t, (unsigned)x.vector);
        siginfo_t info = { .si_signo = x.signo,
                           .si_code = x.code,
                           .si_addr = (void *)(uintptr_t)x.addr };
        if (x.signo == SIGBUS && x.code == BUS_MCEERR_AR)
                info.si_addr_lsb = PAGE_SHIFT;
        const struct ksigaction k = action_for_delivery(t, x.signo);
        if (!has_handler(&k) || (mask & bit(x.signo)))
                killed(t, x.signo, x.code, x.addr);
        else
                run_handler(t, &k, &info, mask, mask);
}
