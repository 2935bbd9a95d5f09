/*
 * Runs a few bytes of code and gives their outcome: a signal, or the values of rax and the flags.
 *
 * Code may leave DF, NT, AC, any segment and any stack pointer behind it. So handlers run on a
 * stack of their own and call nothing of the C library, and whatever way the code is left, run_end
 * restores the registers that the C code around it needs.
 */
#include <asm/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "t_entry.h"

unsigned char data[DATA_SIZE] __attribute__((aligned(4096)));

/* Of one thread: registers that run_code_asm keeps, and the place of the outcome. */
uint64_t run_rsp, run_fs_base, run_ss, run_cs, run_rax, run_flags;
static struct outcome *now;

void run_code_asm(const void *code);
extern char run_end[];

__asm__(".pushsection .text\n"
        "run_code_asm:\n"
        "       push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "       mov %rsp, run_rsp(%rip)\n"
        "       mov %ss, %eax; mov %rax, run_ss(%rip); mov %cs, %eax; mov %rax, run_cs(%rip)\n"
        "       mov %rdi, %r11\n"
        "       lea data(%rip), %rdi; mov %rdi, %rsi\n"
        "       xor %ecx, %ecx; xor %edx, %edx; xor %ebx, %ebx; xor %ebp, %ebp; xor %r8d, %r8d; "
        "xor %r9d, %r9d\n"
        "       xor %r10d, %r10d; xor %r12d, %r12d; xor %r13d, %r13d; xor %r14d, %r14d; xor %r15d, "
        "%r15d\n"
        "       sub $512, %rsp\n" /* code may write above its return address */
        "       xor %eax, %eax\n"
        "       call *%r11\n"
        "       pushfq; pop run_flags(%rip)\n"
        "       mov %rax, run_rax(%rip)\n"
        "run_end:\n"
        "       mov run_ss(%rip), %eax; mov %eax, %ss\n"
        "       mov run_rsp(%rip), %rsp\n"
        "       pushfq; andq $~0x244500, (%rsp); popfq\n" /* ID AC NT DF TF; IF is as it was */
        "       xor %eax, %eax; mov %eax, %ds; mov %eax, %es; mov %eax, %fs; mov %eax, %gs\n"
        /* arch_prctl(ARCH_SET_FS) */
        "       mov $158, %eax; mov $0x1002, %edi; mov run_fs_base(%rip), %rsi; syscall\n"
        "       pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
        "       ret\n"
        ".popsection\n");

__attribute__((no_stack_protector))
static void on_signal(int sig, siginfo_t *si, void *context)
{
        greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;

        if (now->signo) {
                now->more++;
        } else {
                now->signo = sig;
                now->code = si->si_code;
                now->addr = (uint64_t)si->si_addr;
                now->rip = (uint64_t)g[REG_RIP];
                now->trap = (uint64_t)g[REG_TRAPNO];
                now->err = (uint64_t)g[REG_ERR];
                now->flags = (uint64_t)g[REG_EFL];
        }
        g[REG_RIP] = (greg_t)run_end;
        g[REG_EFL] &= ~0x54500;
        g[REG_CSGSFS] = (g[REG_CSGSFS] & ~0xffffll) | (greg_t)run_cs;
}

void run_prepare(void)
{
        static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS };
        static char stack[65536];
        struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };

        sigfillset(&sa.sa_mask);
        sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof(stack) }, NULL);
        for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
                sigaction(signals[i], &sa, NULL);
        syscall(SYS_arch_prctl, ARCH_GET_FS, &run_fs_base);
}

void run_code(const void *code, struct outcome *o)
{
        memset(data, 0, sizeof(data));
        memset(o, 0, sizeof(*o));
        now = o;
        run_code_asm(code);
        if (!o->signo) {
                o->rax = run_rax;
                o->flags = run_flags;
        }
}
