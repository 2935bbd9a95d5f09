/*
 * The end of a thread, of a child of vfork, and of the program: by itself or by a signal.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "control/control.h"
#include "far/far.h"
#include "marshal/scratch.h"
#include "process/end.h"
#include "process/service.h"
#include "process/threads.h"
#include "profile/profile.h"
#include "replay/replay.h"
#include "signal/sigframe.h"
#include "signal/signals.h"
#include "stats/report.h"

/* Leaks that were found; writes statistics, of a program that ended with that status, and the
 * profile. */
static int64_t last_reports(struct thread *t, int status)
{
        int64_t leaks = 0;

        threads_stop(t);
        threads_end_robust_lists(t);
        if (opt.debug) {
                service_hold(0);        /* no page moves while it counts */
                leaks = thread_upcall(t, UPCALL_LEAKCHECK, threads_pins(t), 0, 0);
                service_release();
        }
        if (opt.stats)
                stats_report(status);
        profile_write(t);
        replay_end();
        return leaks;
}

static void judge(int64_t leaks)
{
        if (leaks > 0)
                die_(EXIT_VMRUN_FAILED, "the leak check found %lld inconsistencies",
                     (long long)leaks);
}

void program_goodbye(void)
{
        if (service_hold(STILL_MS))
                far_still();
        far_end();
}

void program_executes(struct thread *t) { judge(last_reports(t, STATS_EXECVE)); }

/* The program exits by itself: statistics, leak check, exit status. */
static _Noreturn void program_exit(struct thread *t, int status)
{
        ctl_end();
        int64_t leaks = last_reports(t, status & 255);
        program_goodbye();
        judge(leaks);
        threads_stop_for_good();
        _exit(status);
}

/* Ends vmrun by the signal that ends the program. */
static _Noreturn void program_killed(struct thread *t, const struct thread_end *end)
{
        int signo = end->signo;
        const struct ksigaction dfl = { .handler = 0 };
        const uint64_t set = 1ull << (signo - 1);

        if (!options_report(&opt))      /* the reports come first */
                signals_open_deadly(t);
        info_("the program died of %s (code %d) at RIP 0x%llx, address 0x%llx", strsignal(signo),
              end->code, (unsigned long long)t->v->regs.rip, (unsigned long long)end->addr);
        if (!t->vforked) {              /* the program belongs to its parent */
                ctl_end();
                last_reports(t, 128 + signo);
                program_goodbye();
                threads_stop_for_good();
        }
        /* The kernel's own calls: libc's refuse 32 and 33. */
        syscall(SYS_rt_sigaction, signo, &dfl, NULL, sizeof(dfl.mask));
        syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), signo);
        syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, sizeof(set));
        /* not reached: the default action of these signals ends the process */
        _exit(128 + signo);
}

void thread_finish(struct thread *t)
{
        switch (t->end.how) {
        case END_PROGRAM: program_exit(t, t->end.status);
        case END_KILLED:  program_killed(t, &t->end);
        case END_CHILD:
                threads_let_go(t);
                _exit(t->end.status);
        default:
                sys_scratch_end();
                threads_gone(t);
        }
}
