/*
 * Exceptions that become signals of the program; kern's own, other than page faults, stop the VM.
 */
#include "kern.h"
#include "mm.h"

enum { VEC_DE = 0, VEC_DB = 1, VEC_BP = 3, VEC_OF = 4, VEC_BR = 5, VEC_UD = 6, VEC_NP = 11, VEC_SS = 12, VEC_GP = 13,
       VEC_PF = 14, VEC_MF = 16, VEC_AC = 17, VEC_XM = 19 };

/* Linux's signal numbers and si_codes for x86 exceptions (arch/x86/kernel/traps.c says which is which). */
enum { SIGILL = 4, SIGTRAP = 5, SIGBUS = 7, SIGFPE = 8, SIGSEGV = 11 };
enum { SI_KERNEL = 0x80, ILL_ILLOPN = 2, FPE_INTDIV = 1, FPE_FLTINV = 7, TRAP_BRKPT = 1, TRAP_TRACE = 2, BUS_ADRALN = 1 };

void program_resume(void) __attribute__((noreturn));    /* entry.S */

/* The host sees to it that the program goes on as on Linux, that its handler runs next, or that it dies.  Nothing waits on kern's stack: whoever calls
 * this is done with the exception. */
static _Noreturn void raise(uint64_t vector, int signo, int code, uint64_t addr)
{
        vmexit5(EXIT_SIGNAL, (uint64_t)signo, (uint64_t)code, addr, vector, 0);
        program_resume();
}

_Noreturn void program_signal(int signo, int code, uint64_t addr) { raise(VEC_PF, signo, code, addr); }

void trap(uint64_t vector);
void trap(uint64_t vector)
{
        uint64_t rip = vcpu_self.regs.rip;

        switch (vector) {
        case VEC_DE: raise(vector, SIGFPE, FPE_INTDIV, rip);
        case VEC_DB: raise(vector, SIGTRAP, TRAP_TRACE, rip);
        case VEC_BP: raise(vector, SIGTRAP, SI_KERNEL, 0);
        case VEC_UD: raise(vector, SIGILL, ILL_ILLOPN, rip);
        case VEC_NP: case VEC_SS: raise(vector, SIGBUS, SI_KERNEL, 0);
        case VEC_MF: case VEC_XM: raise(vector, SIGFPE, FPE_FLTINV, rip);       /* the host finds out which */
        case VEC_AC: raise(vector, SIGBUS, BUS_ADRALN, 0);
        case VEC_OF: case VEC_BR: case VEC_GP: raise(vector, SIGSEGV, SI_KERNEL, 0);
        default: raise(vector, SIGSEGV, SI_KERNEL, 0);  /* no CPU raises it here: `int n`, or a CPU that the program has set up */
        }
}

extern char syscall_jump[] __attribute__((visibility("hidden"))), iret_jump[] __attribute__((visibility("hidden")));

struct trap_frame { uint64_t vector, err, rip, cs, rflags, rsp, ss; };

/* The program executed SYSRET in ring 0, and a CS of ring 3 is in vcpu.regs since. */
static bool left_ring_0(void) { return vcpu_self_fixed.level == 0 && vcpu_self.regs.cs == SEL_USER_CS; }

/* A trap with RIP in kern.  Two instructions may cause one through no fault of kern's: the jump and the IRET back to
 * the program, when it asked for an address that is not canonical, or for a level that is not its own. */
void kern_trap(struct trap_frame *t);
void kern_trap(struct trap_frame *t)
{
        if (t->vector == VEC_GP && (t->rip == (uint64_t)syscall_jump || t->rip == (uint64_t)iret_jump)) {
                vcpu_self.regs.err = t->err;
                raise(VEC_GP, SIGSEGV, SI_KERNEL, 0);
        }
        if (t->rip == (uint64_t)iret_jump && left_ring_0()) {
                vcpu_self.regs.cs = SEL_KERN_CS;
                vcpu_self.regs.ss = SEL_KERN_SS;
                raise(VEC_GP, SIGSEGV, SI_KERNEL, 0);
        }
        kern_log(0, "trap %lu in kern: error 0x%lx rip 0x%lx rflags 0x%lx rsp 0x%lx", t->vector, t->err, t->rip, t->rflags, t->rsp);
        kern_bug("trap in kern", t->vector, t->rip);
}
