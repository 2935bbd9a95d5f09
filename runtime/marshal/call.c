/*
 * Where system calls enter the host kernel: vmrun's own for the program, and the program's.
 *
 * After the host handler (signal/signals.c) took a signal, no call that sleeps may follow: the
 * handler left all signals blocked, so nothing would wake it.  The check of sys_put_off and the
 * `syscall` instruction are separate instructions, and a signal may come between them.  So the
 * handler moves a RIP in [sys_enter_look, sys_enter_syscall] to sys_enter_put_off.  A RIP at
 * `syscall` itself may also mean that the kernel will restart an interrupted call.  In both cases
 * the call had no effect, and the program makes it again after its handler ran.  An interrupted
 * call that must not be repeated has RIP behind `syscall` and its result (EINTR, or a short count)
 * in RAX.
 */
#include "marshal/call.h"

long sys_own(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
        long ret;
        register uint64_t r10 __asm__("r10") = a3;
        register uint64_t r8 __asm__("r8") = a4;
        register uint64_t r9 __asm__("r9") = a5;

        __asm__ volatile("syscall"
                         : "=a"(ret)
                         : "0"(nr), "D"(a0), "S"(a1), "d"(a2), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
        return ret;
}

/* long sys_enter(word, nr, args): the call, or -SYS_PUT_OFF if *word is set. */
__asm__(".pushsection .text\n"
        ".globl sys_enter, sys_enter_look, sys_enter_syscall, sys_enter_put_off\n"
        ".hidden sys_enter, sys_enter_look, sys_enter_syscall, sys_enter_put_off\n"
        ".type sys_enter, @function\n"
        "sys_enter:\n"
        "       movq %rsi, %rax\n"
        "       movq %rdi, %rcx\n"
        "       movq (%rdx), %rdi\n"
        "       movq 8(%rdx), %rsi\n"
        "       movq 24(%rdx), %r10\n"
        "       movq 32(%rdx), %r8\n"
        "       movq 40(%rdx), %r9\n"
        "       movq 16(%rdx), %rdx\n"
        "sys_enter_look:\n"
        "       cmpl $0, (%rcx)\n"
        "       jne sys_enter_put_off\n"
        "sys_enter_syscall:\n"
        "       syscall\n"
        "       ret\n"
        "sys_enter_put_off:\n"
        "       movq $-512, %rax\n"
        "       ret\n"
        ".size sys_enter, . - sys_enter\n"
        ".popsection\n");
_Static_assert(SYS_PUT_OFF == 512, "the routine above says it");

#pragma GCC visibility push(hidden)
extern const char sys_enter_look[], sys_enter_syscall[], sys_enter_put_off[];
#pragma GCC visibility pop

uint64_t sys_interrupted(uint64_t rip)
{
        return rip >= P(sys_enter_look) && rip <= P(sys_enter_syscall) ? P(sys_enter_put_off) : rip;
}
