/*
 * The code of a block: random registers and flags, then some twenty random parts, then all
 * registers are stored and C continues.
 *
 * A part is an instruction or a few that behave alike on all CPUs and at both privilege levels:
 * others (see instructions.known) are not among them. A part that reads clocks, pids or CPUID
 * overwrites the values. All pointers are aligned, for AC may be set.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <signal.h>
#include "t_entry_fuzz.h"

enum reg { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };

int code_for_level3;

static unsigned char *at;

static void bytes(const void *p, unsigned n) { memcpy(at, p, n); at += n; }
#define B(...)                                                           \
        bytes((const unsigned char[]){ __VA_ARGS__ },                    \
              sizeof((const unsigned char[]){ __VA_ARGS__ }))
static void word32(uint64_t v) { uint32_t w = (uint32_t)v; bytes(&w, 4); }
static void word64(uint64_t v) { bytes(&v, 8); }

static unsigned rex(unsigned reg, unsigned rm) { return 0x48 | (reg >> 3) << 2 | rm >> 3; }

/* Memory at a 32-bit address as the operand of an instruction that was begun. */
static void absolute(unsigned reg, uint64_t addr) { B(0x04 | (reg & 7) << 3, 0x25); word32(addr); }

static void mov_imm(unsigned reg, uint64_t v) { B(rex(0, reg), 0xb8 | (reg & 7)); word64(v); }
static void load_abs(unsigned reg, const void *p)
{
        B(rex(reg, 0), 0x8b);
        absolute(reg, (uint64_t)p);
}
static void store_abs(unsigned reg, const void *p)
{
        B(rex(reg, 0), 0x89);
        absolute(reg, (uint64_t)p);
}

static uint64_t region(struct random *r)
{
        static const uint64_t all[] = { TOUCHED,  TOUCHED, FRESH,    FRESH, FRESH,
                                        READONLY, NONE,    UNMAPPED, SHARED };
        return all[below(r, sizeof(all) / sizeof(*all))];
}

/* Aligned to 16; near a page's end now and then. */
static uint64_t pointer(struct random *r)
{
        uint64_t page = region(r) + below(r, PAGES) * PAGE;

        switch (below(r, 8)) {
        case 0: return page + PAGE - 16;
        case 1: return page;
        case 2: return 0x8000000000000000ul + page;     /* not canonical */
        default: return page + below(r, PAGE / 16) * 16;
        }
}

static uint64_t value(struct random *r)
{
        static const uint64_t odd[] = { 0,
                                        1,
                                        ~0ul,
                                        0x8000000000000000ul,
                                        0x7ffffffffffffffful,
                                        0x800000000000ul,
                                        0xffffffff81000000ul,
                                        0xffff800000000000ul };

        switch (below(r, 4)) {
        case 0: return odd[below(r, sizeof(odd) / sizeof(*odd))];
        case 1: return pointer(r);
        case 2: return below(r, 256);
        default: return random_next(r);
        }
}

/* CF PF AF ZF SF DF OF NT AC ID, always IF; sometimes TF. */
static uint64_t flags(struct random *r)
{
        return (random_next(r) & (code_for_level3 ? 0x240cd5 : 0x244cd5)) | 0x202 |
               (below(r, 8) == 0 ? 0x100 : 0);
}

static unsigned any_reg(struct random *r)
{
        unsigned reg = (unsigned)below(r, 16);
        return reg == RSP ? RAX : reg;
}

static void popf(uint64_t f)
{
        B(0x68); word32(f);             /* push; popfq */
        B(0x9d);
}

/* ---- parts ---- */

static void alu(struct random *r)
{
        static const unsigned char op[] = {
                0x01, 0x29, 0x31, 0x21, 0x09, 0x39, 0x85, 0x11, 0x19
        }; /* add sub xor and or cmp test adc sbb */
        unsigned a = any_reg(r), b = any_reg(r);

        B(rex(a, b), op[below(r, sizeof(op))], 0xc0 | (a & 7) << 3 | (b & 7));
}

static void memory(struct random *r)
{
        static const unsigned char op[] = { 0x8b, 0x89, 0x01, 0x87,
                                            0x3b }; /* load, store, add, xchg, cmp */
        unsigned p = any_reg(r), v = any_reg(r);

        mov_imm(p, pointer(r));
        B(rex(v, p), op[below(r, sizeof(op))],
          0x80 | (v & 7) << 3 | (p & 7)); /* with a displacement of 32 bits */
        if ((p & 7) == 4)
                B(0x24);
        word32(0);
}

static void vector(struct random *r)
{
        unsigned x = (unsigned)below(r, 8);

        mov_imm(RBX, pointer(r));
        if (below(r, 2))
                B(0x0f, 0x28, 0x03 | x << 3);   /* movaps xmm, (rbx) */
        else
                B(0x0f, 0x29, 0x03 | x << 3);
}

static void far_load(struct random *r)
{
        mov_imm(RBX, FAR + below(r, FAR_PAGES * PAGE / 8) * 8);
        B(0x48, 0x03, 0x03);            /* add (rbx), rax */
}

static void string(struct random *r)
{
        static const unsigned char op[] = {
                0xa4, 0xa5, 0xaa, 0xab, 0xac, 0xae, 0xa6
        }; /* movs stos lods scas cmps */

        int reads = (int)below(
                r, 2); /* which of the two is bad first differs between CPUs: one at most is */

        mov_imm(RDI, reads ? TOUCHED + below(r, 2 * PAGE / 16) * 16 : pointer(r));
        mov_imm(RSI, reads ? pointer(r) : TOUCHED + 2 * PAGE + below(r, PAGE / 16) * 16);
        mov_imm(RCX, below(r, 48));
        if (below(r, 2))
                B(0xf3);
        B(0x48, op[below(r, sizeof(op))]);
}

static void stack(struct random *r)
{
        unsigned a = any_reg(r);

        if (a >= 8)
                B(0x41);
        B((below(r, 2) ? 0x50 : 0x58) | (a & 7));       /* push, pop */
}

static void flags_part(struct random *r)
{
        switch (below(r, 8)) {
        case 0: B(0xfd); break;         /* std */
        case 1: B(0xfc); break;
        case 2: B(0x9c, 0x58); break;   /* pushfq; pop rax */
        case 3: B(0x9f); break;         /* lahf */
        case 4: B(0x9e); break;
        default: popf(flags(r)); break;
        }
}

static void exception(struct random *r)
{
        switch (below(r, 16)) {
        case 0: B(0x0f, 0x0b); break;                           /* ud2 */
        case 1: B(0xcc); break;                                 /* int3 */
        case 2: B(0xcd, 0x03); break;
        case 3: B(0xcd, 0x04); break;
        case 4: B(0xf4); break;                                 /* hlt */
        case 5: B(0x31, 0xc9, 0xf7, 0xf1); break;               /* div by 0 */
        case 6: B(0xec); break;                                 /* in */
        case 7: B(0xe6, 0x80); break;                           /* out */
        case 8:
                mov_imm(RAX, value(r) | 1ul << 63);
                B(0xff, 0xe0);
                break; /* jmp to what is no code */
        case 9: mov_imm(RAX, pointer(r)); B(0xff, 0xe0); break;
        case 10: B(0xf0, 0x90); break;                          /* lock nop */
        case 11:
                mov_imm(RBX, TOUCHED + 8);
                B(0x0f, 0x28, 0x03);
                break;                                           /* movaps, unaligned */
        case 12: mov_imm(RAX, pointer(r)); B(0xff, 0xd0); break; /* call */
        default: {                      /* int n, below 0x80 */
                unsigned char n = (unsigned char)(5 + below(r, 123));
                /* A pagetable-based KVM treats these differently (instructions.known). */
                B(0xcd, code_for_level3 && n >= 0x17 && n <= 0x1a ? 5 : n);
                break;
        }
        }
}

static void unstable(struct random *r)
{
        switch (below(r, 3)) {
        case 0: B(0x0f, 0x31); break;                           /* rdtsc */
        case 1: B(0x0f, 0xa2); break;                           /* cpuid */
        default: B(0x31, 0xc9, 0x0f, 0x01, 0xd0); break;        /* xgetbv */
        }
        mov_imm(RAX, value(r));
        mov_imm(RBX, value(r));
        mov_imm(RCX, value(r));
        mov_imm(RDX, value(r));
}

static void segment(struct random *r)
{
        static const unsigned char seg[] = { 0xd8, 0xc0, 0xe8 };        /* ds es gs */
        static const unsigned sel[] = { 0, 3, 0x2b, 0x28, 0xfff3, 0x63 };

        B(0xb8); word32(sel[below(r, sizeof(sel) / sizeof(*sel))]);
        B(0x8e, seg[below(r, sizeof(seg))]);
}

static void stack_pointer(struct random *r)
{
        uint64_t p = pointer(r);

        if (below(r, 3) || (code_for_level3 && p >> 47))
                p = STACK + PAGES * PAGE - below(r, 3 * PAGE / 8) * 8;
        mov_imm(RSP, p);
}

static void call_with(unsigned nr, uint64_t a, uint64_t b, uint64_t c)
{
        mov_imm(RDI, a);
        mov_imm(RSI, b);
        mov_imm(RDX, c);
        mov_imm(RAX, nr);
        B(0x0f, 0x05);
}

static void system_call(struct random *r)
{
        const uint64_t page = FRESH + below(r, PAGES) * PAGE;

        switch (below(r, 14)) {
        case 0: case 1: B(0xb8); word32(SYS_getpid); B(0x0f, 0x05); mov_imm(RAX, value(r)); break;
        case 2: B(0xb8); word32(SYS_gettid); B(0x0f, 0x05); mov_imm(RAX, value(r)); break;
        case 3: B(0xb8); word32(SYS_getppid); B(0x0f, 0x05); mov_imm(RAX, value(r)); break;
        case 4: B(0xb8); word32(SYS_sched_yield); B(0x0f, 0x05); break;
        case 5: mov_imm(RAX, (uint64_t)-1 - below(r, 3)); B(0x0f, 0x05); break;
        case 6: call_with(SYS_mprotect, page, PAGE, below(r, 4)); break;
        case 7: call_with(SYS_madvise, page, PAGE * (1 + below(r, 2)), MADV_DONTNEED); break;
        case 8: call_with(SYS_munmap, page, PAGE, 0); break;
        case 9:
                mov_imm(R8, (uint64_t)-1);
                mov_imm(R9, 0);
                mov_imm(R10, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
                call_with(SYS_mmap, page, PAGE, below(r, 4));
                break;
        case 10:
                mov_imm(R10, 8);
                call_with(SYS_rt_sigprocmask, SIG_BLOCK, 0, pointer(r));
                break;
        case 11: call_with(SYS_read, W->zero_fd, pointer(r), 16); break;
        case 12: call_with(SYS_write, W->null_fd, pointer(r), 16); break;
        default:                        /* a signal on the way back */
                load_abs(RDI, &W->pid);
                load_abs(RSI, &W->tid);
                B(0xba); word32(SIGUSR2);
                B(0xb8); word32(SYS_tgkill);
                B(0x0f, 0x05);
                mov_imm(RDI, value(r));
                mov_imm(RSI, value(r));
                break;
        }
}

static void part(struct random *r)
{
        static void (*const kinds[])(struct random *) = {
                alu,         memory,      memory,      memory,  vector,        far_load,
                string,      string,      stack,       stack,   flags_part,    flags_part,
                exception,   exception,   unstable,    segment, stack_pointer, system_call,
                system_call, system_call, system_call,
        };

        kinds[below(r, sizeof(kinds) / sizeof(*kinds))](r);
}

/* ---- a block ---- */

static void begin_slot(unsigned n)
{
        W->slot_at[n] = (uint64_t)at;
        B(0xc7, 0x04, 0x25);            /* movl $n, slot */
        word32((uint64_t)&W->slot);
        word32(n);
}

void code_make(struct random *r)
{
        at = (unsigned char *)CODE;
        /* From C: its registers on its stack. */
        B(0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57);
        store_abs(RSP, &W->c_rsp);
        for (unsigned x = 0; x < 8; x++) {
                W->xmm[x][0] = random_next(r);
                W->xmm[x][1] = random_next(r);
                B(0x0f, 0x28);          /* movaps xmm, memory */
                absolute(x, (uint64_t)W->xmm[x]);
        }
        mov_imm(RSP, STACK + PAGES * PAGE - 64);
        popf(flags(r));
        for (unsigned reg = 0; reg < 16; reg++)
                if (reg != RSP)
                        mov_imm(reg, value(r));
        W->slots = 4 + (unsigned)below(r, SLOTS - 4);
        for (unsigned n = 0; n < W->slots; n++) {
                begin_slot(n);
                part(r);
        }
        begin_slot(W->slots);
        for (unsigned reg = 0; reg < 16; reg++)
                store_abs(reg, reg == RSP ? &W->rsp : &W->regs[reg]);
        for (unsigned x = 0; x < 8; x++) {
                B(0x0f, 0x29);
                absolute(x, (uint64_t)W->xmm[x]);
        }
        load_abs(RSP, &W->c_rsp);
        B(0x9c, 0x8f);                  /* pushfq; pop flags */
        absolute(0, (uint64_t)&W->flags);
        popf(0x202);
        B(0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xe8);      /* ds es gs: 0 */
        B(0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3);
}
