/*
 * Ways into kern and back to the program.
 *
 *   page fault    stub (#PF, IST 1) -> pf_common -> page_fault() (paging/fault.c) -> return_iret
 *   other traps   stub (IST 2) -> trap_common -> trap() (trap.c) -> return_iret
 *   system call   syscall_entry -> syscall_dispatch() (syscall.c) -> return_syscall
 *   kick          the host points RIP at event_entry -> return_iret
 *
 * A system call returns with rcx and r11 as the SYSCALL instruction left them.  Where the host has
 * set more than rax (a signal frame, rt_sigreturn, a call to be restarted) it also sets an event,
 * and events end in return_iret, which restores all registers.
 *
 * While its vCPU is in kern the program's registers are in vcpu.regs, complete.  IST 1 ends at the
 * end of vcpu.regs, so for a page fault the CPU itself stores err..ss in place.  Program and kern
 * run at one privilege level.  At p = 0 a stub just continues.  At p = 3 the stubs are the only
 * ring-0 code there is, and continue at CPL 3 by an IRET frame made beforehand.  From pf_common,
 * trap_common and syscall_entry on, both levels share the code.
 *
 * The returns are restartable: from "look" on there are only plain moves from an intact vcpu.regs,
 * so a vCPU that is kicked there starts again at "look" and sees the kick (runtime/vm/vcpu.c does
 * that).  [I]
 */
#include "entry/offsets.h"
#include "layout.h"

#define V(off)   vcpu_self+(off)(%rip)
/* Top of kern's stack: an address, not a word in memory that the program could overwrite. */
#define KSTACK   vcpu_self+VCPU_STACK_TOP(%rip)

        .section .header, "ax"
        .globl kern_header
kern_header:
        .quad KERN_MAGIC_
        .long KERN_ABI_VERSION, 32
        .quad kern_image_end, kern_text_end, kern_constant_end
        .quad kern_start_asm, event_entry, syscall_entry
        .quad stubs0, stubs3
        .quad STUB_SIZE
        .quad flush_gate_end
        .quad pf_common, trap_common
        .quad look_iret, look_syscall
        .quad look_iret_end, look_syscall_end
        .quad upcall_serve

        .text

/* First instruction of a vCPU; RSP is the top of kern's stack. */
        .globl kern_start_asm
kern_start_asm:
        xorl %ebp, %ebp
        /* No instruction emulator knows addps: the probe for p (runtime/vm/vcpu_setup.c). */
        addps %xmm0, %xmm0
        call kern_start
        jmp return_iret

.macro save_registers_but_rax
        movq %rdi, V(R_rdi)
        movq %rsi, V(R_rsi)
        movq %rdx, V(R_rdx)
        movq %rcx, V(R_rcx)
        movq %r8,  V(R_r8)
        movq %r9,  V(R_r9)
        movq %r10, V(R_r10)
        movq %r11, V(R_r11)
        movq %rbx, V(R_rbx)
        movq %rbp, V(R_rbp)
        movq %r12, V(R_r12)
        movq %r13, V(R_r13)
        movq %r14, V(R_r14)
        movq %r15, V(R_r15)
        cld
.endm

/* ---- exception stubs ---- */

.set STUB_SIZE, 64
#define HAS_ERROR_CODE(n) \
        ((n) == 8 || ((n) >= 10 && (n) <= 14) || (n) == 17 || (n) == 21 || (n) == 29 || (n) == 30)

/* Stack (IST 2) after this: a struct trap_frame. */
.macro trap_words n
        .if !HAS_ERROR_CODE(\n)
        pushq $0
        .endif
        pushq $\n
.endm

/* The error code of the #GP that `int n` raises where the program may not use its gate (Intel SDM
 * vol. 3A 6.13). */
#define INT_ERROR_CODE(n) ((n) * 8 + 2)

/*
 * In ring 0 no gate is closed to the program's `int n`, and `int n` pushes no error code.  The CPU
 * aligns the stack to 16 bytes before it pushes, so RSP tells whether five words were pushed or
 * six.
 */
.macro jump_if_software_int label
        testb $8, %spl
        jnz \label
.endm

        .balign STUB_SIZE
stubs0:
.set n, 0
.rept 32
        .balign STUB_SIZE
        .if n == 14
        jump_if_software_int int_14
        pushq %rax                              /* lands in vcpu.regs.rax */
        movq %cr2, %rax
        movq %rax, V(V_CR2)
        leaq KSTACK, %rsp
        jmp pf_common
        .else
        .if HAS_ERROR_CODE(n)
        jump_if_software_int 1f
        pushq $n
        leaq KSTACK, %rsp
        jmp trap_common
1:      pushq $INT_ERROR_CODE(n)
        pushq $(SOFTWARE_INT_ + n)
        .else
        trap_words n
        .endif
        leaq KSTACK, %rsp
        jmp trap_common
        .endif
        .set n, n + 1
.endr
        .balign STUB_SIZE

/* `int $14` in ring 0: the CPU stored rip..ss in vcpu.regs, as for a page fault. */
int_14: pushq $INT_ERROR_CODE(14)               /* lands in vcpu.regs.err */
        pushq %rax
        leaq KSTACK, %rsp
        movl $MODE_KERN_, V(V_MODE)
        save_registers_but_rax
        movl $(SOFTWARE_INT_ + 14), %edi
        call trap
        jmp return_iret

/* p = 3.  Each instruction here is emulated on a pagetable-based KVM, so there are few. */
        .balign STUB_SIZE
stubs3:
.set n, 0
.rept 32
        .balign STUB_SIZE
        .if n == 14
        pushq %rax
        movq %cr2, %rax
        movq %rax, V(V_CR2)
        leaq V(V_FRAME3_PF), %rsp
        iretq
        .elseif n == 3
        pushq $0
        jmp gate_or_breakpoint
        .else
        trap_words n
        leaq V(V_FRAME3_TRAP), %rsp
        iretq
        .endif
        .set n, n + 1
.endr
        .balign STUB_SIZE

/* An int3.  If it is kern's own, it asks for a TLB flush, which only ring 0 can do. */
gate_or_breakpoint:
        pushq $3
        pushq %rax
        leaq flush_gate_end(%rip), %rax
        cmpq %rax, 24(%rsp)
        jne 1f
        movq %cr3, %rax
        movq %rax, %cr3
        popq %rax
        addq $16, %rsp
        iretq
1:      popq %rax
        leaq V(V_FRAME3_TRAP), %rsp
        iretq

/* ---- into kern ---- */

pf_common:
        movl $MODE_KERN_, V(V_MODE)
        save_registers_but_rax
        call page_fault
        jmp return_iret

/* The words that the stub and the CPU pushed are a struct trap_frame that ends at the top of the
 * stack (T_*).  A trap in kern itself must not touch vcpu.regs. */
#define COPY_WORD(field) \
        movq V(T_##field), %rax; \
        movq %rax, V(R_##field)

trap_common:
        pushq %rax
        pushq %rcx
        movq V(T_rip), %rax
        leaq kern_image(%rip), %rcx
        subq %rcx, %rax
        cmpq $CONTROL_OFF, %rax                 /* kern's image ends before it */
        jb 1f
        popq %rcx
        popq %rax
        movl $MODE_KERN_, V(V_MODE)
        movq %rax, V(R_rax)
        save_registers_but_rax
        COPY_WORD(err)
        COPY_WORD(rip)
        COPY_WORD(cs)
        COPY_WORD(rflags)
        COPY_WORD(rsp)
        COPY_WORD(ss)
        movq V(T_vector), %rdi
        call trap
        jmp return_iret
1:      cmpq $VEC_DB_, V(T_vector)
        jne 2f
        leaq syscall_entry(%rip), %rcx
        cmpq %rcx, V(T_rip)
        je step_of_syscall
2:      popq %rcx
        popq %rax
        leaq V(T_vector), %rdi                  /* the frame */
        leaq syscall_jump(%rip), %rsi
        leaq iret_jump(%rip), %rdx
        cld
        /* Returns only for a trap on the way back to the program. */
        call kern_trap
        jmp return_iret

/* The program single-steps (TF) over a SYSCALL, and the #DB comes after it, at syscall_entry.
 * Bochs does so; no hardware is known to.  SFMASK has cleared TF in the flags to return with, R11
 * still has it, and kern's stack is unused: so continue as if the #DB had not come, as Linux
 * does. */
step_of_syscall:
        popq %rcx
        popq %rax
        leaq V(T_rip), %rsp
        iretq

/* A vCPU that was kicked in program code.  The host has stored rip, rflags and rsp in vcpu.regs and
 * set RSP to kern's stack. */
event_entry:
        movl $MODE_KERN_, V(V_MODE)
        movq %rax, V(R_rax)
        save_registers_but_rax
        call events
        jmp return_iret

/* SYSCALL: RCX = return address, R11 = RFLAGS, RSP the program's; arrives at the program's level (p
 * = 3 too). */
        .balign 64
syscall_entry:
        movq %rsp, V(R_rsp)
        leaq KSTACK, %rsp
        movl $MODE_KERN_, V(V_MODE)
        movq %rax, V(R_rax)
        movq %rcx, V(R_rip)
        movq %r11, V(R_rflags)
        save_registers_but_rax
        call syscall_dispatch
        testb $1, V(R_rflags+1)                 /* TF: a popf would trap in kern, iretq does not */
        jnz return_iret
        /* Fall through. */

/* ---- back to the program ---- */

.macro restore_registers_but_rcx_r11
        movq V(R_rax), %rax
        movq V(R_rdi), %rdi
        movq V(R_rsi), %rsi
        movq V(R_rdx), %rdx
        movq V(R_r8),  %r8
        movq V(R_r9),  %r9
        movq V(R_r10), %r10
        movq V(R_rbx), %rbx
        movq V(R_rbp), %rbp
        movq V(R_r12), %r12
        movq V(R_r13), %r13
        movq V(R_r14), %r14
        movq V(R_r15), %r15
.endm

/* Store PROGRAM, full barrier, then look for events and flushes.  A kicker sets those, full
 * barrier, then looks at the mode.  So one of the two sees the other.  [I] (base/flush.c) */
.macro become_program label
        movl $MODE_PROGRAM_, V(V_MODE)
        lock orl $0, -8(%rsp)                   /* RSP may be the very top of kern's stack */
\label:
        cmpl $0, V(V_EVENT)
        jne 9f
        movq control+C_FLUSH_EPOCH(%rip), %rax
        cmpq V(V_FLUSHED), %rax
        jne 9f
.endm

return_syscall:
        become_program look_syscall
        restore_registers_but_rcx_r11
        movq V(R_rip), %rcx
        movq V(R_rflags), %r11
        leaq V(R_rflags), %rsp
        popfq
        movq V(R_rsp), %rsp
syscall_jump:
        jmp *%rcx
look_syscall_end:

return_iret:
        become_program look_iret
        restore_registers_but_rcx_r11
        movq V(R_rcx), %rcx
        movq V(R_r11), %r11
        leaq V(R_rip), %rsp
iret_jump:
        iretq
look_iret_end:

9:      movl $MODE_KERN_, V(V_MODE)
        leaq KSTACK, %rsp
        call events
        jmp return_iret

        .section .note.GNU-stack, "", @progbits
