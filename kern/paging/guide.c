/*
 * Running guides.
 */
#include "base/cpu.h"
#include "base/kern.h"
#include "base/print.h"
#include "paging/guide.h"

/* In the vCPU's own block (layout.h). */
struct guide_run {
        struct guide *guide;
        struct regs regs;               /* the thread's */
        uint64_t cr2, entry_tsc, fs, gs;
        struct guided fault;
};
_Static_assert(sizeof(struct guide_run) <= PAGE_SIZE, "it fits its page");

#pragma GCC visibility push(hidden)
extern struct guide_run vcpu_self_guide;
extern uint64_t vcpu_self_guide_stack[(VCPU_GUIDE_STACK_TOP - VCPU_GUIDE_STACK) / 8];
extern char vcpu_self_guide_xsave[VCPU_GUIDE_XSAVE_SIZE];
#pragma GCC visibility pop

/* The state of a CPU that has used no extended state yet: all components but these two words are in
 * their initial state (XSTATE_BV 0; Intel SDM vol. 1, 13.6). */
static const struct { uint16_t fcw, pad[11]; uint32_t mxcsr; uint8_t rest[548]; }
        initial __attribute__((aligned(64))) = { .fcw = 0x37f, .mxcsr = 0x1f80 };
_Static_assert(sizeof(initial) >= 576, "the header of XSAVE is part of it");

static void describe(struct hint_fault *to, const struct fault *f, enum hint_event event)
{
        const struct regs *r = &vcpu_self.regs;

        *to = (struct hint_fault){
                .size = sizeof(*to), .event = event, .addr = vcpu_self.cr2,
                .write = !!(f->error & PF_WRITE),
                .reg = { r->rax, r->rbx, r->rcx, r->rdx, r->rsi, r->rdi, r->rbp, r->rsp,
                         r->r8, r->r9, r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip },
        };
}

/* Odd, even, odd: kern writes guide_run here alone. */
static void next_run(void)
{
        uint32_t now = atomic_load_explicit(&vcpu_self.guide_run, memory_order_relaxed);

        atomic_store_explicit(&vcpu_self.guide_run, now + 1, memory_order_relaxed);
        vcpu_self.guided = (now + 1) & 1 ? PF_RESERVED : 0;
}

/* Registers as a function finds them that was called with two arguments (System V ABI, 3.2):
 * RSP + 8 is a multiple of 16. */
static void enter(uint64_t fn, uint64_t fault, uint64_t arg, uint64_t *sp)
{
        struct regs *r = &vcpu_self.regs;
        const struct regs old = *r;

        *sp = GUIDE_RETURN;
        *r = (struct regs){ .rip = fn, .rsp = (uint64_t)sp, .rdi = fault, .rsi = arg,
                            .cs = old.cs, .ss = old.ss, .rflags = RFLAGS_PROGRAM };
}

bool guide_begin(const struct fault *f, enum outcome awaits, enum hint_event event,
                 uint64_t exits)
{
        const uint64_t words = sizeof(vcpu_self_guide_stack) / sizeof(uint64_t);
        const uint64_t described = (sizeof(struct hint_fault) + 15) / 16 * 2;
        struct guide_run *run = &vcpu_self_guide;
        uint64_t fn, arg, *top = &vcpu_self_guide_stack[words - described];

        if (atomic_load_explicit(&guides_on, memory_order_relaxed) == 0)
                return false;
        struct guide *g = guides_find(f->addr, &fn, &arg);
        if (!g)
                return false;
        *run = (struct guide_run){
                .guide = g, .regs = vcpu_self.regs, .cr2 = vcpu_self.cr2,
                .entry_tsc = vcpu_self.entry_tsc, .fs = cpu_fs(), .gs = cpu_gs(),
                .fault = { .f = *f, .awaits = awaits, .event = event, .exits = exits },
        };
        cpu_save_extended(vcpu_self_guide_xsave, control.xsave);
        cpu_load_extended(&initial, control.xsave);
        describe((struct hint_fault *)top, f, event);
        enter(fn, (uint64_t)top, arg, top - 1);
        count(CNT_GUIDED);
        next_run();
        return true;
}

static __attribute__((cold, noinline)) void say(const struct guide *g, enum guide_end how,
                                                bool removed)
{
        static const char *const what[GUIDE_ENDS] = {
                [GUIDE_TOUCHED] = "touched memory that is not here",
                [GUIDE_TRAPPED] = "raised an exception",
                [GUIDE_CALLED] = "made a system call that guides may not make",
                [GUIDE_LATE] = "took too long",
        };
        const struct regs *r = &vcpu_self.regs;

        kern_log(removed ? 0 : 1, "the guide %s %s (rip 0x%lx, rax 0x%lx, address 0x%lx)%s",
                 g->name, what[how], r->rip, r->rax, vcpu_self.cr2,
                 removed ? ": it has been stopped three times, and is called no more" : "");
}

bool guide_finish(enum guide_end how, struct guided *fault)
{
        struct guide_run *run = &vcpu_self_guide;
        bool again = how == GUIDE_RETURNED && vcpu_self.regs.rax == HINT_AGAIN;

        next_run();
        bool removed = guides_count(run->guide, how);
        if (how != GUIDE_RETURNED && how != GUIDE_INTERRUPTED)
                say(run->guide, how, removed);
        guides_leave(run->guide);
        cpu_load_extended(vcpu_self_guide_xsave, control.xsave);
        cpu_set_fs(run->fs);
        cpu_set_gs(run->gs);
        vcpu_self.regs = run->regs;
        vcpu_self.cr2 = run->cr2;
        vcpu_self.entry_tsc = run->entry_tsc;
        *fault = run->fault;
        return again;
}
