/*
 * Exceptions other than page faults: an exception of the program becomes a signal, an exception of
 * kern stops the VM.
 */
#include "base/exit.h"
#include "base/flush.h"
#include "base/kern.h"
#include "base/print.h"
#include "base/signal.h"
#include "base/state.h"
#include "entry/trap.h"
#include "pager/pager.h"
#include "paging/fault.h"
#include "paging/guide.h"
#include "x86.h"

void trap(uint64_t vector)
{
        uint64_t rip = vcpu_self.regs.rip;

        if (guide_runs()) {
                fault_guide_over(GUIDE_TRAPPED);
                return;
        }
        switch (vector) {
        case VEC_DE:
                program_signal(vector, SIGFPE, FPE_INTDIV, rip);
                break;
        case VEC_DB:
                program_signal(vector, SIGTRAP, TRAP_TRACE, rip);
                break;
        case VEC_BP:
                program_signal(vector, SIGTRAP, SI_KERNEL, 0);
                break;
        case VEC_UD:
                program_signal(vector, SIGILL, ILL_ILLOPN, rip);
                break;
        case VEC_NP:
        case VEC_SS:
                program_signal(vector, SIGBUS, SI_KERNEL, 0);
                break;
        case VEC_MF:
        case VEC_XM:                    /* the host finds out which si_code it is */
                program_signal(vector, SIGFPE, FPE_FLTINV, rip);
                break;
        case VEC_AC:
                program_signal(vector, SIGBUS, BUS_ADRALN, 0);
                break;
        case VEC_OF:
        case VEC_BR:
        case VEC_GP:
        /* No CPU raises another vector by itself: this is `int n`, or the program has changed the
         * CPU's set-up. */
        default:
                program_signal(vector, SIGSEGV, SI_KERNEL, 0);
        }
}

/* The program executed SYSRET in ring 0, and a CS of ring 3 is in vcpu.regs since. */
static bool left_ring_0(void)
{
        return vcpu_self_fixed.level == 0 && vcpu_self.regs.cs == SEL_USER_CS;
}

/* Two instructions of kern may trap through the program's fault: the jump and the IRET back to it.
 * Then the program's RIP is not canonical, or its CS is of another privilege level. */
void kern_trap(const struct trap_frame *t, uint64_t syscall_jump, uint64_t iret_jump)
{
        bool back = t->rip == syscall_jump || t->rip == iret_jump;

        if (back && guide_runs()) {
                fault_guide_over(GUIDE_TRAPPED);
                return;
        }
        if (t->vector == VEC_GP && back) {
                vcpu_self.regs.err = t->err;
                program_signal(VEC_GP, SIGSEGV, SI_KERNEL, 0);
                return;
        }
        if (t->rip == iret_jump && left_ring_0()) {
                vcpu_self.regs.cs = SEL_KERN_CS;
                vcpu_self.regs.ss = SEL_KERN_SS;
                program_signal(VEC_GP, SIGSEGV, SI_KERNEL, 0);
                return;
        }
        kern_log(0, "trap %lu in kern: error 0x%lx rip 0x%lx rflags 0x%lx rsp 0x%lx",
                 t->vector, t->err, t->rip, t->rflags, t->rsp);
        kern_bug("trap in kern", t->vector, t->rip);
}

void events(void)
{
        struct vcpu *v = &vcpu_self;
        uint32_t event = atomic_exchange(&v->event, 0);
        bool guided = guide_runs();

        /* The host looks at the thread's own registers. */
        if (guided && (event & EVENT_HOST))
                fault_guide_over(event & EVENT_PRIVILEGED ? GUIDE_TRAPPED : GUIDE_INTERRUPTED);
        else if ((event & EVENT_GUIDE) && guide_is_late())
                fault_guide_over(GUIDE_LATE);
        if (event & EVENT_HOST)
                vmexit(EXIT_EVENT, guided, 0, 0);
        if (event & EVENT_STOCK)
                frame_list_drain(&pager, &vcpu_self.frames);
        if (atomic_load(&control.flush_epoch) != atomic_load(&v->flushed))
                flush_self();
}
