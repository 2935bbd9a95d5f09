/*
 * Exceptions that differ from Linux's because of the program's privilege level.
 *
 * In ring 0 (p = 0) no IDT gate is closed to `int n`, so it arrives as the exception n itself.  And
 * a selector of ring 3 cannot be loaded: `lret` and `iretq` to Linux's CS and `mov` of Linux's SS
 * fault, which some programs execute (Wine).  The instruction before or at RIP shows the cause;
 * instructions that work on Linux are carried out here.  At p = 3 a pagetable-based KVM may raise
 * #UD for an `int n` whose gate is closed.
 */
#include <signal.h>
#include <string.h>
#include "memory/gmem.h"
#include "signal/trapped.h"
#include "signal/vsyscall.h"
#include "vm/vcpu_setup.h"
#include "x86.h"

#define INT_LEN   2  /* bytes of `int n`: 0xcd n */
#define CODE_MAX  15 /* bytes of the longest instruction */
/* The flags that IRET in ring 3 changes. */
#define RFLAGS_OF_IRET (X86_FLAGS_OF_USER | X86_NT | X86_ID)

/* ---- looking at the program's code ---- */

/* Reads up to n bytes at `at`; returns how many are readable. */
static size_t read_code(struct thread *t, uint64_t at, uint8_t *code, size_t n)
{
        size_t first = PAGE_SIZE - (at & (PAGE_SIZE - 1));

        if (gmem_read(t, code, at, n) == 0)
                return n;
        return first < n && gmem_read(t, code, at, first) == 0 ? first : 0;
}

static bool is_prefix(uint8_t b)
{
        return b == 0x66 || b == 0x67 || b == 0xf0 || b == 0xf2 || b == 0xf3 || b == 0x2e ||
               b == 0x36 || b == 0x3e || b == 0x26 || b == 0x64 || b == 0x65;
}

struct instruction {
        uint8_t code[CODE_MAX + 2]; /* zeros after the readable bytes */
        size_t op;                  /* where the opcode is */
        uint8_t rex;                /* 0: none */
        bool size16;
};

static struct instruction instruction_at(struct thread *t, uint64_t rip)
{
        struct instruction i = {.op = 0};
        size_t n = read_code(t, rip, i.code, CODE_MAX);

        while (i.op < n && is_prefix(i.code[i.op]))
                i.size16 |= i.code[i.op++] == 0x66;
        if (i.op < n && (i.code[i.op] & 0xf0) == 0x40)
                i.rex = i.code[i.op++];
        return i;
}

static bool follows_int(struct thread *t, unsigned n)
{
        uint8_t code[INT_LEN];
        return gmem_read(t, code, t->v->regs.rip - INT_LEN, INT_LEN) == 0 && code[0] == 0xcd &&
               code[1] == n;
}

/*
 * Was this exception without an error code raised by the CPU?  Then RIP is at the instruction, and
 * the bytes before it are arbitrary.  Not so for #DB of single-stepping, which TF shows.
 */
static bool is_cpus_own(struct thread *t, int vector)
{
        const struct instruction i = instruction_at(t, t->v->regs.rip);
        const uint8_t *op = i.code + i.op;

        switch (vector) {
        case VEC_DE:
                return (op[0] == 0xf6 || op[0] == 0xf7) && (op[1] & 0x30) == 0x30; /* div, idiv */
        case VEC_DB: return t->v->regs.rflags & X86_TF;
        case VEC_UD:
                return op[0] == 0x0f &&
                       (op[1] == 0x0b || op[1] == 0xb9 || op[1] == 0xff); /* ud2, ud1, ud0 */
        default: return false;
        }
}

static bool is_io(uint8_t op)
{
        return (op & 0xfc) == 0xe4 || (op & 0xfc) == 0xec || (op & 0xfc) == 0x6c;
}

void trapped_io(struct thread *t)
{
        const struct instruction i = instruction_at(t, t->v->regs.rip);
        uint8_t before[4]; /* the longest instruction that it steps over: two prefixes */
        size_t len;

        if (is_io(i.code[i.op]) ||
            gmem_read(t, before, t->v->regs.rip - sizeof(before), sizeof(before)))
                return;
        if (is_io(before[3]) && (before[3] & 0xfc) != 0xe4)
                len = 1;
        else if ((before[2] & 0xfc) == 0xe4)
                len = 2; /* the port follows the opcode */
        else
                return;
        while (len < sizeof(before) && is_prefix(before[3 - len]))
                len++;
        t->v->regs.rip -= len;
}

/* ---- int n ---- */

/* The result of `int n` where its gate is closed to ring 3. */
static void closed_gate(struct thread *t, struct trapped *x, unsigned n)
{
        *x = (struct trapped){.signo = SIGSEGV, .code = SI_KERNEL, .vector = VEC_GP};
        t->v->regs.err = n * 8 + 2;
}

/* QEMU 7.2 sometimes raises #GP for an `int n` past the IDT's end with RIP behind it, and with an
 * error code of its own (16 for 8). */
static bool is_behind_int(struct thread *t)
{
        const struct instruction i = instruction_at(t, t->v->regs.rip);
        uint64_t err = t->v->regs.err;

        return (err & 2) && i.code[i.op] != 0xcd &&
               (follows_int(t, (uint8_t)(err >> 3)) || follows_int(t, (uint8_t)(err >> 4)));
}

static void int_at_p0(struct thread *t, struct trapped *x)
{
        unsigned n = (unsigned)x->vector & ~(unsigned)SOFTWARE_INT;

        if (x->vector & SOFTWARE_INT) {
                t->v->regs.rip -= INT_LEN;
                closed_gate(t, x, n);
        } else if (n != VEC_BP && n != VEC_OF && n != VEC_GP && n != VEC_NP && n != VEC_SS &&
                   n != VEC_AC && follows_int(t, n) && !is_cpus_own(t, x->vector)) {
                t->v->regs.rip -= INT_LEN;
                closed_gate(t, x, n);
        } else if (n == VEC_GP && is_behind_int(t)) {
                t->v->regs.rip -= INT_LEN;
        }
}

static void int_at_p3(struct thread *t, struct trapped *x)
{
        const struct instruction i = instruction_at(t, t->v->regs.rip);
        unsigned n = i.code[i.op + 1];

        if (x->vector != VEC_UD || i.code[i.op] != 0xcd)
                return;
        if (n != VEC_BP && n != VEC_OF) {
                closed_gate(t, x, n);
                return;
        }
        t->v->regs.rip += i.op + INT_LEN;
        *x = (struct trapped){
                .signo = n == VEC_BP ? SIGTRAP : SIGSEGV, .code = SI_KERNEL, .vector = (int)n};
}

/* ---- loading Linux's selectors ---- */

static uint64_t general_register(const struct regs *r, unsigned number)
{
        const uint64_t all[16] = {r->rax, r->rcx, r->rdx, r->rbx, r->rsp, r->rbp, r->rsi, r->rdi,
                                  r->r8,  r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15};
        return all[number];
}

static unsigned operand_size(const struct instruction *i)
{
        return i->rex & 8 ? 8 : i->size16 ? 2 : 4;
}

/* Reads n words of the operand size from the program's stack. */
static bool read_stack(struct thread *t, const struct instruction *i, uint64_t *word, unsigned n)
{
        unsigned size = operand_size(i);
        uint8_t bytes[5 * 8];

        if (gmem_read(t, bytes, t->v->regs.rsp, (uint64_t)n * size))
                return false;
        for (unsigned k = 0; k < n; k++) {
                word[k] = 0;
                memcpy(&word[k], bytes + k * size, size);
        }
        return true;
}

static bool far_return(struct thread *t, const struct instruction *i, unsigned drop)
{
        struct regs *r = &t->v->regs;
        uint64_t w[2]; /* rip cs */

        if (!read_stack(t, i, w, 2) || (w[1] & 0xffff) != SEL_USER_CS || w[0] >= TASK_SIZE)
                return false;
        r->rip = w[0];
        r->rsp += 2 * operand_size(i) + drop;
        return true;
}

static bool interrupt_return(struct thread *t, const struct instruction *i)
{
        struct regs *r = &t->v->regs;
        uint64_t w[5]; /* rip cs rflags rsp ss */

        if (!read_stack(t, i, w, 5) || (w[1] & 0xffff) != SEL_USER_CS ||
            (w[4] & 0xffff) != SEL_USER_SS || w[0] >= TASK_SIZE)
                return false;
        r->rip = w[0];
        r->rflags = (r->rflags & ~RFLAGS_OF_IRET) | (w[2] & RFLAGS_OF_IRET);
        r->rsp = w[3];
        return true;
}

/* mov ss, register */
static bool load_ss(struct thread *t, const struct instruction *i)
{
        struct regs *r = &t->v->regs;
        uint8_t modrm = i->code[i->op + 1];

        if (modrm >> 3 != (0xc0 >> 3 | 2) ||
            (uint16_t)general_register(r, (modrm & 7) | (i->rex & 1u) << 3) != SEL_USER_SS)
                return false;
        /* SS stays ring 0's, which makes no difference to memory accesses. */
        r->rip += i->op + 2;
        return true;
}

static bool carried_out(struct thread *t)
{
        const struct instruction i = instruction_at(t, t->v->regs.rip);
        const uint8_t *op = i.code + i.op;

        switch (op[0]) {
        case 0xcb: return far_return(t, &i, 0);
        case 0xca: return far_return(t, &i, op[1] | (unsigned)op[2] << 8);
        case 0xcf: return interrupt_return(t, &i);
        case 0x8e: return load_ss(t, &i);
        default: return false;
        }
}

/* int1: a #DB that no flag explains. */
static bool is_icebp(struct thread *t)
{
        uint8_t code[2];
        return !(t->v->regs.rflags & X86_TF) && gmem_read(t, code, t->v->regs.rip - 1, 2) == 0 &&
               (code[0] == 0xf1 || code[1] == 0xf1);
}

bool trapped_as_on_linux(struct thread *t, struct trapped *x)
{
        if (x->vector == VEC_PF)
                return vsyscall_carried_out(t, x);
        if (x->vector == VEC_DB && is_icebp(t))
                x->code = TRAP_BRKPT;
        if (t->vm->level == 3) {
                int_at_p3(t, x);
                return false;
        }
        int_at_p0(t, x);
        if (x->vector == VEC_UD || x->vector == VEC_NM || x->vector == VEC_GP ||
            x->vector == VEC_NP || x->vector == VEC_SS) {
                if (vcpu_mend(t))
                        *x = (struct trapped){
                                .signo = SIGSEGV, .code = SI_KERNEL, .vector = VEC_GP};
                else if (x->vector != VEC_UD && x->vector != VEC_NM && carried_out(t))
                        return true;
                /* The selectors of ring 3 are absent at p = 0 (vm/vcpu_setup.c); Linux's are
                 * present. */
                if (x->vector == VEC_NP)
                        *x = (struct trapped){
                                .signo = SIGSEGV, .code = SI_KERNEL, .vector = VEC_GP};
        }
        return false;
}
