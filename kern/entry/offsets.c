/*
 * Numbers that the assembly needs, as the compiler sees them: the build turns the output into
 * offsets.h.
 */
#include <stddef.h>
#include "abi_control.h"
#include "abi_exits.h"
#include "abi_image.h"
#include "abi_vcpu.h"
#include "entry/trap.h"
#include "x86.h"

#define DEFINE(sym, val) __asm__ volatile("\n->" #sym " %0" :: "i"(val))

void offsets(void);
void offsets(void)
{
        DEFINE(V_MODE, offsetof(struct vcpu, mode));
        DEFINE(V_EVENT, offsetof(struct vcpu, event));
        DEFINE(V_FLUSHED, offsetof(struct vcpu, flushed));
        DEFINE(V_CR2, offsetof(struct vcpu, cr2));
        DEFINE(V_FRAME3_PF, VCPU_FIXED_OFF + offsetof(struct vcpu_fixed, frame3_pf));
        DEFINE(V_FRAME3_TRAP, VCPU_FIXED_OFF + offsetof(struct vcpu_fixed, frame3_trap));
        DEFINE(V_REGS, offsetof(struct vcpu, regs));
#define TRAP_WORD(name) \
        DEFINE(T_##name, VCPU_IST_OFF + PAGE_SIZE - sizeof(struct trap_frame) + \
                         offsetof(struct trap_frame, name))
        TRAP_WORD(vector); TRAP_WORD(err); TRAP_WORD(rip); TRAP_WORD(cs); TRAP_WORD(rflags);
        TRAP_WORD(rsp); TRAP_WORD(ss);
#define REG(name) DEFINE(R_##name, offsetof(struct vcpu, regs) + offsetof(struct regs, name))
        REG(r15);
        REG(r14);
        REG(r13);
        REG(r12);
        REG(rbp);
        REG(rbx);
        REG(r11);
        REG(r10);
        REG(r9);
        REG(r8);
        REG(rcx);
        REG(rdx);
        REG(rsi);
        REG(rdi);
        REG(rax);
        REG(err);
        REG(rip);
        REG(cs);
        REG(rflags);
        REG(rsp);
        REG(ss);
        DEFINE(C_FLUSH_EPOCH, offsetof(struct control, flush_epoch));
        DEFINE(MODE_KERN_, MODE_KERN);
        DEFINE(MODE_PROGRAM_, MODE_PROGRAM);
        DEFINE(KERN_MAGIC_, KERN_MAGIC);
        DEFINE(KERN_ABI_VERSION, ABI_VERSION);
        DEFINE(VEC_DB_, VEC_DB);
        DEFINE(SOFTWARE_INT_, SOFTWARE_INT);
}

/* The stack for #PF ends where struct regs ends: see entry.S. */
_Static_assert((offsetof(struct vcpu, regs) + sizeof(struct regs)) % 16 == 0,
               "the CPU would align the #PF stack elsewhere");
