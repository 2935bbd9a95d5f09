/*
 * The instructions: privileged ones, those that raise exceptions, odd ways of changing segments and
 * flags. In code, rdi = rsi = data (zeroes), all else is 0; it ends by ret, which the macro adds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "t_entry.h"

/* Flags, for the assembler. */
#define RUN 0
#define VALUE 1         /* I_VALUE */
#define ALONE 2         /* I_ALONE */
#define LOW 4           /* I_LOW */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#define I(name, flags, code) __asm__( \
        ".pushsection .rodata\n772:\t.asciz \"" name "\"\n.popsection\n" \
        ".pushsection .text\n771:\t" code "\n\tret\n.popsection\n" \
        ".pushsection entry_cases, \"aw\"\n\t.quad 772b, 771b, " TEXT(flags) "\n.popsection\n")

/* ---- what only a kernel may ---- */
I("cli", ALONE, "cli");
I("sti", ALONE, "sti; nop; nop");
I("hlt", ALONE, "hlt");
I("in al, 0x10", RUN, "in $0x10, %al");
I("in eax, 0x10", RUN, "in $0x10, %eax");
I("in al, 0x80", RUN, "in $0x80, %al");
I("in al, dx (0x3f8)", RUN, "mov $0x3f8, %edx; in %dx, %al");
I("in ax, dx (0)", RUN, "in %dx, %ax");
I("out 0x10, al", RUN, "out %al, $0x10");
I("out 0x10, eax", RUN, "out %eax, $0x10");
I("out 0x14, al", RUN, "out %al, $0x14");
I("out 0x14, eax", RUN, "out %eax, $0x14");
I("out 0x80, al", RUN, "out %al, $0x80");
I("out dx (0x3f8), al", RUN, "mov $0x3f8, %edx; out %al, %dx");
I("insb", RUN, "mov $0x80, %edx; insb");
I("rep insl", RUN, "mov $0x80, %edx; mov $4, %ecx; rep insl");
I("outsb", RUN, "mov $0x80, %edx; outsb");
I("outsl to 0x10", RUN, "mov $0x10, %edx; outsl");
I("rep outsb", RUN, "mov $0x80, %edx; mov $4, %ecx; rep outsb");
I("rep outsb, none", RUN, "mov $0x80, %edx; rep outsb");
I("rdmsr TSC", RUN, "mov $0x10, %ecx; rdmsr");
I("rdmsr EFER", RUN, "mov $0xc0000080, %ecx; rdmsr");
I("rdmsr LSTAR", RUN, "mov $0xc0000082, %ecx; rdmsr");
I("rdmsr FS_BASE", RUN, "mov $0xc0000100, %ecx; rdmsr");
I("rdmsr APIC_BASE", RUN, "mov $0x1b, %ecx; rdmsr");
I("rdmsr 0xdeadbeef", RUN, "mov $0xdeadbeef, %ecx; rdmsr");
I("wrmsr LSTAR", ALONE, "mov $0xc0000082, %ecx; wrmsr");
I("wrmsr STAR", ALONE, "mov $0xc0000081, %ecx; wrmsr");
I("wrmsr SFMASK", ALONE, "mov $0xc0000084, %ecx; wrmsr");
I("wrmsr EFER", ALONE, "mov $0xc0000080, %ecx; wrmsr");
I("wrmsr FS_BASE", ALONE, "mov $0xc0000100, %ecx; wrmsr");
I("wrmsr GS_BASE", ALONE, "mov $0xc0000101, %ecx; wrmsr");
I("wrmsr KERNEL_GS_BASE", ALONE, "mov $0xc0000102, %ecx; wrmsr");
I("wrmsr TSC", ALONE, "mov $0x10, %ecx; wrmsr");
I("wrmsr PAT", ALONE, "mov $0x277, %ecx; wrmsr");
I("wrmsr APIC_BASE", ALONE, "mov $0x1b, %ecx; wrmsr");
I("wrmsr SYSENTER_CS", ALONE, "mov $0x174, %ecx; wrmsr");
I("wrmsr 0xdeadbeef", ALONE, "mov $0xdeadbeef, %ecx; wrmsr");
I("rdpmc", RUN, "rdpmc");
I("invlpg", RUN, "invlpg (%rdi)");
I("invd", RUN, "invd");
I("wbinvd", RUN, "wbinvd");
I("wbnoinvd", RUN, ".byte 0xf3, 0x0f, 0x09");
I("invpcid", RUN, "mov $2, %eax; invpcid (%rdi), %rax");
I("swapgs", ALONE, "swapgs");
I("clts", ALONE, "clts");
I("lmsw 0", ALONE, "lmsw %ax");
I("lmsw 0xffff", ALONE, "mov $0xffff, %eax; lmsw %ax");
I("mov eax, cr0", RUN, "mov %cr0, %rax");
I("mov eax, cr1", RUN, ".byte 0x0f, 0x20, 0xc8");
I("mov eax, cr2", RUN, "mov %cr2, %rax");
I("mov eax, cr3", RUN, "mov %cr3, %rax");
I("mov eax, cr4", RUN, "mov %cr4, %rax");
I("mov eax, cr8", RUN, "mov %cr8, %rax");
I("mov cr0, 0", ALONE, "mov %rax, %cr0");
I("mov cr0, 0x80050033", ALONE, "mov $0x80050033, %eax; mov %rax, %cr0");
I("mov cr0, 0x80000011", ALONE, "mov $0x80000011, %eax; mov %rax, %cr0");
I("mov cr2, 0", RUN, "mov %rax, %cr2");
I("mov cr3, 0", ALONE, "mov %rax, %cr3");
I("mov cr3, -1", ALONE, "mov $-1, %rax; mov %rax, %cr3");
I("mov cr4, 0", ALONE, "mov %rax, %cr4");
I("mov cr4, -1", ALONE, "mov $-1, %rax; mov %rax, %cr4");
I("mov cr4, 0x6a0", ALONE, "mov $0x6a0, %eax; mov %rax, %cr4");
I("mov cr8, 0", ALONE, "mov %rax, %cr8");
I("mov cr8, 15", ALONE, "mov $15, %eax; mov %rax, %cr8");
I("mov eax, dr0", RUN, "mov %dr0, %rax");
I("mov eax, dr4", RUN, "mov %db4, %rax");
I("mov eax, dr6", RUN, "mov %dr6, %rax");
I("mov eax, dr7", RUN, "mov %dr7, %rax");
I("mov dr0, 0", ALONE, "mov %rax, %dr0");
I("mov dr6, 0", ALONE, "mov %rax, %dr6");
I("mov dr7, 0x400", ALONE, "mov $0x400, %eax; mov %rax, %dr7");
I("mov dr7, with a breakpoint", ALONE,
  "lea 1f(%rip), %rax; mov %rax, %dr0; mov $0x401, %eax; mov %rax, %dr7; 1: nop");
I("lgdt of zeroes", ALONE, "lgdt (%rdi); mov $0x2b, %eax; mov %eax, %es");
I("lidt of zeroes", ALONE, "lidt (%rdi); ud2");
I("lldt 0", ALONE, "lldt %ax");
I("lldt 0x2b", ALONE, "mov $0x2b, %eax; lldt %ax");
I("ltr 0", ALONE, "ltr %ax");
I("ltr 0x40", ALONE, "mov $0x40, %eax; ltr %ax");
I("ltr 0x2b", ALONE, "mov $0x2b, %eax; ltr %ax");
I("sysretq", ALONE, "lea 1f(%rip), %rcx; mov $0x202, %r11d; sysretq; 1: nop");
I("sysretl", ALONE, "lea 1f(%rip), %rcx; mov $0x202, %r11d; sysretl; 1: nop");
I("sysexitq", ALONE, "lea 1f(%rip), %rdx; mov %rsp, %rcx; sysexitq; 1: nop");
I("sysexit", ALONE, "sysexitl");
I("stac", ALONE, "stac");
I("clac", ALONE, "clac");
I("xsetbv 0", ALONE, "mov $7, %eax; xsetbv");
I("xsetbv 5", ALONE, "mov $5, %ecx; xsetbv");
I("monitor", RUN, "mov %rdi, %rax; monitor");
I("mwait", RUN, "mwait");
I("monitorx", RUN, ".byte 0x0f, 0x01, 0xfa");
I("mwaitx", RUN, ".byte 0x0f, 0x01, 0xfb");
I("rsm", RUN, "rsm");
I("getsec", RUN, "getsec");
I("encls", RUN, "encls");
I("pconfig", RUN, "pconfig");
I("xsaves", RUN, "xsaves (%rdi)");
I("xrstors", RUN, "xrstors (%rdi)");
I("skinit", RUN, ".byte 0x0f, 0x01, 0xde");
I("clgi", ALONE, "clgi");
I("stgi", RUN, "stgi");
I("vmrun", RUN, ".byte 0x0f, 0x01, 0xd8");
I("vmload", RUN, ".byte 0x0f, 0x01, 0xda");
I("vmsave", RUN, ".byte 0x0f, 0x01, 0xdb");
I("invlpga", RUN, ".byte 0x0f, 0x01, 0xdf");
I("vmmcall", RUN, "mov $-1, %rax; vmmcall");
I("vmcall", RUN, "mov $-1, %rax; vmcall");
I("vmlaunch", RUN, "vmlaunch");
I("vmresume", RUN, "vmresume");
I("vmxoff", RUN, "vmxoff");
I("vmxon", RUN, "vmxon (%rdi)");
I("vmread", RUN, "vmread %rax, %rcx");
I("vmwrite", RUN, "vmwrite %rax, %rcx");
I("vmptrld", RUN, "vmptrld (%rdi)");
I("vmptrst", RUN, "vmptrst (%rdi)");
I("vmclear", RUN, "vmclear (%rdi)");
I("vmfunc", RUN, "vmfunc");
I("invept", RUN, "invept (%rdi), %rax");
I("invvpid", RUN, "invvpid (%rdi), %rax");

/* ---- user mode may, if the kernel lets it (UMIP, CR4) ---- */
I("sgdt", RUN, "sgdt (%rdi)");
I("sidt", RUN, "sidt (%rdi)");
I("sldt", RUN, "sldt %eax");
I("str", RUN, "str %eax");
I("smsw", RUN, "smsw %eax");
I("rdtsc", RUN, "rdtsc");
I("rdtscp", RUN, "rdtscp");
I("rdpid", RUN, "rdpid %rax");
I("cpuid", RUN, "cpuid");
I("rdfsbase", RUN, "rdfsbase %rax");
I("wrgsbase", VALUE, "mov $0x1234, %eax; wrgsbase %rax; rdgsbase %rcx; mov %rcx, %rax");
I("wrfsbase, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; wrfsbase %rax");
I("xgetbv 0", VALUE, "xgetbv");
I("xgetbv 5", RUN, "mov $5, %ecx; xgetbv");
I("clflush", RUN, "clflush (%rdi)");
I("clflush of nothing", RUN, "mov $64, %eax; clflush (%rax)");
I("prefetch of nothing", RUN, "mov $64, %eax; prefetcht0 (%rax)");
I("sysenter", RUN, "sysenter");
I("xend", RUN, "xend");
I("rdpkru", RUN, "rdpkru");

/* ---- exceptions ---- */
I("int3", RUN, "int3");
I("int $3", RUN, ".byte 0xcd, 3");
I("icebp", RUN, ".byte 0xf1");
I("into", RUN, ".byte 0xce");
I("bound", RUN, ".byte 0x62, 0x07");
I("ud0", RUN, ".byte 0x0f, 0xff, 0xc0");
I("ud1", RUN, ".byte 0x0f, 0xb9, 0xc0");
I("ud2", RUN, "ud2");
I("push es", RUN, ".byte 0x06");
I("daa", RUN, ".byte 0x27");
I("salc", RUN, ".byte 0xd6");
I("call far direct", RUN, ".byte 0x9a, 0, 0, 0, 0, 0x33, 0");
I("jmp far direct", RUN, ".byte 0xea, 0, 0, 0, 0, 0x33, 0");
I("aad", RUN, ".byte 0xd5, 0");
I("arpl", RUN, ".byte 0x82, 0xc0, 0");
I("lock nop", RUN, ".byte 0xf0, 0x90");
I("lock mov", RUN, ".byte 0xf0, 0x89, 0x07");
I("lock add to a register", RUN, ".byte 0xf0, 0x01, 0xc8");
I("lock cmpxchg8b eax", RUN, ".byte 0xf0, 0x0f, 0xc7, 0xc8");
I("16 bytes", RUN, ".fill 15, 1, 0x66; nop");
I("15 bytes", RUN, ".fill 14, 1, 0x66; nop");
I("div by 0", RUN, "div %ecx");
I("idiv, too large", RUN, "mov $0x80000000, %eax; mov $-1, %edx; mov $-1, %ecx; idiv %ecx");
I("x87 division by 0", RUN,
  "fninit; movw $0x37b, (%rdi); fldcw (%rdi); fldz; fld1; fdivp; fwait; fninit");
I("x87 invalid", RUN,
  "fninit; movw $0x37e, (%rdi); fldcw (%rdi); fldz; fldz; fdivp; fwait; fninit");
I("SSE division by 0", RUN,
  "movl $0x1d80, (%rdi); ldmxcsr (%rdi); xorps %xmm1, %xmm1; mov $1, %eax; cvtsi2ss %eax, %xmm0; "
  "divss %xmm1, %xmm0");
I("ldmxcsr, reserved bits", RUN,
  "movl $-1, (%rdi); ldmxcsr (%rdi); movl $0x1f80, (%rdi); ldmxcsr (%rdi)");
I("movaps, unaligned", RUN, "movaps 1(%rdi), %xmm0");
I("cmpxchg16b, unaligned", RUN, "lock cmpxchg16b 1(%rdi)");
I("load from 0", RUN, "xor %ecx, %ecx; mov (%rcx), %eax");
I("store to 64", RUN, "mov %eax, 64");
I("store to code", RUN, "1: mov %eax, 1b(%rip)");
I("load from the kernel", RUN, "mov $0xffffffff81000000, %rax; mov (%rax), %eax");
I("store to the kernel", RUN, "mov $0xffffffff81000000, %rax; mov %eax, (%rax)");
I("load, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; mov (%rax), %eax");
I("store, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; mov %eax, (%rax)");
I("load by rbp, not canonical", RUN,
  "mov $0x8000, %eax; shl $32, %rax; mov %rax, %rbp; mov (%rbp), %eax");
I("push, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; mov %rax, %rsp; push %rax");
I("pop, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; mov %rax, %rsp; pop %rax");
I("jmp, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; jmp *%rax");
I("call, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; call *%rax");
I("ret, not canonical", RUN, "mov $0x8000, %eax; shl $32, %rax; push %rax; ret");
I("jmp to 64", RUN, "mov $64, %eax; jmp *%rax");
I("jmp to data", RUN, "jmp *%rdi");
I("jmp to the kernel", RUN, "mov $0xffffffff81000000, %rax; jmp *%rax");
I("load across the canonical end", RUN,
  "mov $1, %eax; shl $47, %rax; sub $4, %rax; mov (%rax), %rax");
I("rep stosq, wrapping", RUN,
  "mov $-1, %rcx; lea 4096-8(%rdi), %rdi; std; mov $2, %ecx; rep stosq; cld");
I("alignment check", RUN, "pushfq; orl $0x40000, (%rsp); popfq; mov 1(%rdi), %eax");
I("alignment check, aligned", VALUE, "pushfq; orl $0x40000, (%rsp); popfq; mov (%rdi), %eax");

/* ---- far control transfers ---- */
#define IRET(cs, ss, flags)                                                              \
        "mov %rsp, %rcx; pushq $" #ss "; push %rcx; pushq $" #flags "; pushq $" #cs "; " \
        "lea 1f(%rip), %rax; push %rax; iretq; 1: nop"
I("iretq 0x33, 0x2b", RUN, IRET(0x33, 0x2b, 0x202));
I("iretq 0x33, 0", RUN, IRET(0x33, 0, 0x202));
I("iretq 0x33, 3", RUN, IRET(0x33, 3, 0x202));
I("iretq 0, 0x2b", RUN, IRET(0, 0x2b, 0x202));
I("iretq 0x10, 0x18", ALONE, IRET(0x10, 0x18, 0x202));
I("iretq 0x10, 0x2b", ALONE, IRET(0x10, 0x2b, 0x202));
I("iretq 0x2b, 0x2b", RUN, IRET(0x2b, 0x2b, 0x202));
I("iretq 0xfff3, 0x2b", RUN, IRET(0xfff3, 0x2b, 0x202));
I("iretq 0x40, 0x2b", RUN, IRET(0x40, 0x2b, 0x202));
I("iretq, NT set", RUN, "pushfq; orl $0x4000, (%rsp); popfq; " IRET(0x33, 0x2b, 0x202));
I("iretq, flags 0x3000", RUN, IRET(0x33, 0x2b, 0x3002) "; pushfq; pop %rax");
I("iretq, flags 0x254ad7", RUN, IRET(0x33, 0x2b, 0x250ad7) "; pushfq; pop %rax");
I("iretq, not canonical", RUN,
  "mov %rsp, %rcx; pushq $0x2b; push %rcx; pushq $0x202; pushq $0x33; mov $0x8000, %eax; "
  "shl $32, %rax; push %rax; iretq");
I("iretq to this CS and SS", RUN,
  "mov %rsp, %rcx; mov %ss, %eax; push %rax; push %rcx; pushfq; mov %cs, %eax; push %rax; "
  "lea 1f(%rip), %rax; push %rax; iretq; 1: nop");
I("iretl to this CS and SS", LOW,
  "1: mov %rsp, 0x900+1b(%rip); lea 0x800+1b(%rip), %rsp; mov %rsp, %rcx; sub $20, %rsp; "
  "lea 2f(%rip), %rax; mov %eax, (%rsp); "
  "mov %cs, 4(%rsp); movw $0, 6(%rsp); movl $0x202, 8(%rsp); mov %ecx, 12(%rsp); "
  "movl $0, 16(%rsp); mov %ss, 16(%rsp); iretl; 2: mov 0x900+1b(%rip), %rsp");
I("iretw to nothing", RUN, "push $0; push $0; iretw");
I("lretq 0x33", RUN, "pushq $0x33; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq to this CS", RUN,
  "mov %cs, %eax; push %rax; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq 0x10", ALONE, "pushq $0x10; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq 0", RUN, "pushq $0; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq 0x2b", RUN, "pushq $0x2b; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq 0x7b", RUN, "pushq $0x7b; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq 0xfff3", RUN, "pushq $0xfff3; lea 1f(%rip), %rax; push %rax; lretq; 1: nop");
I("lretq 0x33, not canonical", RUN,
  "pushq $0x33; mov $0x8000, %eax; shl $32, %rax; push %rax; lretq");
I("lretq 0x23 (32 bits) and back", LOW,
  "1: mov %rsp, 0x900+1b(%rip); lea 0x800+1b(%rip), %rsp; pushq $0x23; lea 2f(%rip), %rax; "
  "push %rax; lretq\n"
  ".code32\n2: pushl $0x33; call 3f; 3: addl $(4f-3b), (%esp); lret\n.code64\n"
  "4: mov 0x900+1b(%rip), %rsp");
I("int3 in 32 bits", LOW,
  "1: mov %rsp, 0x900+1b(%rip); lea 0x800+1b(%rip), %rsp; pushq $0x23; lea 2f(%rip), %rax; "
  "push %rax; lretq\n"
  ".code32\n2: int3\n.code64\n");
I("jmp far 0x33", LOW,
  "lea 1f(%rip), %eax; mov %eax, (%rdi); movw $0x33, 4(%rdi); ljmp *(%rdi); 1: nop");
I("call far 0x33", LOW,
  "lea 1f(%rip), %eax; mov %eax, (%rdi); movw $0x33, 4(%rdi); lcall *(%rdi); 1: lea 8(%rsp), %rsp");
I("jmp far to this CS", LOW,
  "lea 1f(%rip), %eax; mov %eax, (%rdi); mov %cs, 4(%rdi); ljmp *(%rdi); 1: nop");
I("jmp far 0", RUN, "ljmp *(%rdi)");
I("jmp far 0x40", RUN, "movw $0x40, 4(%rdi); ljmp *(%rdi)");

/* ---- segments ---- */
I("mov eax, cs", VALUE, "mov %cs, %eax");
I("mov eax, ss", VALUE, "mov %ss, %eax");
I("mov eax, ds", VALUE, "mov %ds, %eax");
I("mov eax, es", VALUE, "mov %es, %eax");
I("mov eax, fs", VALUE, "mov %fs, %eax");
I("mov eax, gs", VALUE, "mov %gs, %eax");
I("mov cs, eax", RUN, ".byte 0x8e, 0xc8");
I("mov seg 6, eax", RUN, ".byte 0x8e, 0xf0");
#define SEGMENT(sel, seg)                                                                \
        I("mov " #seg ", " #sel, VALUE,                                                  \
          "mov $" #sel ", %eax; mov %eax, %" #seg "; mov %" #seg ", %eax");
#define SEGMENTS(sel)                                                                            \
        SEGMENT(sel, ds) SEGMENT(sel, es) SEGMENT(sel, fs) SEGMENT(sel, gs) SEGMENT(sel, ss)
SEGMENTS(0)
SEGMENTS(3)
SEGMENTS(0x10)
SEGMENTS(0x18)
SEGMENTS(0x1b)
SEGMENTS(0x20)
SEGMENTS(0x23)
SEGMENTS(0x28)
SEGMENTS(0x2b)
SEGMENTS(0x33)
SEGMENTS(0x40)
SEGMENTS(0x63)
SEGMENTS(0x7b)
SEGMENTS(0xfff3)
I("mov ds, 0x2b and a load", VALUE, "mov $0x2b, %eax; mov %eax, %ds; mov (%rdi), %eax");
I("mov ss, 0x2b and a push", VALUE,
  "mov $0x2b, %eax; mov %eax, %ss; push %rdi; pop %rax; xor %eax, %eax; mov %ss, %eax");
I("mov ss, 0x2b and a system call", VALUE,
  "mov $0x2b, %eax; mov %eax, %ss; mov $-1, %eax; syscall; mov %ss, %eax");
I("mov ss, 0x2b and ud2", RUN, "mov $0x2b, %eax; mov %eax, %ss; ud2");
I("mov ss, 0x2b and int3", RUN, "mov $0x2b, %eax; mov %eax, %ss; int3");
I("mov ds, 0x2b and a system call", VALUE,
  "mov $0x2b, %eax; mov %eax, %ds; mov $-1, %eax; syscall; mov %ds, %eax");
I("pop ds", RUN, ".byte 0x1f");
I("pop fs 0x2b", VALUE, "pushq $0x2b; pop %fs; mov %fs, %eax");
I("lfs", VALUE, "movw $0x2b, 4(%rdi); lfs (%rdi), %eax; mov %fs, %eax");
I("lss 0x2b", VALUE, "movw $0x2b, 4(%rdi); lss (%rdi), %eax; mov %ss, %eax");
I("lds", RUN, ".byte 0xc5, 0x07");
#define SELECTOR(name, sel, ...) I(name " " #sel, VALUE, "mov $" #sel ", %ecx; " #__VA_ARGS__);
#define SELECTORS(sel)                                   \
        SELECTOR("verr", sel, verr %cx)                  \
        SELECTOR("verw", sel, verw %cx)                  \
        SELECTOR("lar", sel, lar %cx, %eax)              \
        SELECTOR("lsl", sel, lsl %cx, %eax)
SELECTORS(0)
SELECTORS(0x10)
SELECTORS(0x18)
SELECTORS(0x23)
SELECTORS(0x2b)
SELECTORS(0x33)
SELECTORS(0x40)
SELECTORS(0x50)
SELECTORS(0xfff3)

/* ---- flags ---- */
I("pushf", VALUE, "pushfq; pop %rax");
#define POPF(bits) I("popf " #bits, VALUE, "pushq $" #bits "; popfq; pushfq; pop %rax");
POPF(0) POPF(1) POPF(2) POPF(4) POPF(8) POPF(0x10) POPF(0x40) POPF(0x80) POPF(0x100) POPF(0x200)
POPF(0x400) POPF(0x800) POPF(0x1000) POPF(0x3000) POPF(0x4000) POPF(0x8000) POPF(0x10000)
POPF(0x20000) POPF(0x40000) POPF(0x80000) POPF(0x100000) POPF(0x200000) POPF(0x400000)
POPF(0x7ffffeff)
I("popfw 0x7eff", VALUE, "pushw $0x7eff; popfw; pushfq; pop %rax");
#define SYSCALL(bits)                                                                    \
        I("a system call, flags " #bits, VALUE,                                          \
          "pushq $0x200+" #bits "; popfq; mov $-1, %eax; syscall; pushfq; pop %rax");
SYSCALL(0) SYSCALL(0x400) SYSCALL(0x4000) SYSCALL(0x4400) SYSCALL(0x10000) SYSCALL(0x40000)
SYSCALL(0x200000) SYSCALL(0x100) SYSCALL(0x244cd5)
I("ud2, DF set", RUN, "std; ud2");
I("ud2, NT set", RUN, "pushq $0x4200; popfq; ud2");
I("page fault, DF and NT set", VALUE,
  "pushq $0x4600; popfq; mov 2048(%rdi), %eax; pushfq; pop %rax");
I("cpuid, DF and NT set", RUN, "pushq $0x4600; popfq; cpuid");

extern struct instruction __start_entry_cases[], __stop_entry_cases[];

static unsigned table_count(void) { return (unsigned)(__stop_entry_cases - __start_entry_cases); }

unsigned instructions_count(void) { return table_count() + 256; }

/* Code that runs in 32 bits as well, with a stack behind it. */
static const void *low_copy(const void *code)
{
        static unsigned char *page;

        if (!page) {
                page = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                if (page == MAP_FAILED) {
                        perror("FAILED mmap");
                        exit(1);
                }
        }
        memcpy(page, code, 256);
        return page;
}

/* int n, for all n. */
static struct instruction interrupt(unsigned n)
{
        static char name[256][16];
        static unsigned char code[256][4] __attribute__((aligned(4096)));

        if (!code[0][0]) {
                for (unsigned i = 0; i < 256; i++)
                        memcpy(code[i], (unsigned char[4]){ 0xcd, (unsigned char)i, 0xc3, 0x90 },
                               4);
                mprotect(code, sizeof(code), PROT_READ | PROT_WRITE | PROT_EXEC);
        }
        snprintf(name[n], sizeof(name[n]), "int 0x%02x", n);
        return (struct instruction){ name[n], code[n], 0 };
}

struct instruction instruction(unsigned n)
{
        if (n >= table_count())
                return interrupt(n - table_count());
        struct instruction i = __start_entry_cases[n];
        if (i.flags & I_LOW)
                i.code = low_copy(i.code);
        return i;
}
