/*
 * Frames of signal handlers: making and undoing them, with the whole extended state, and the
 * alternate stack.  signals.c decides which signal is delivered, and when.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include "memory/gmem.h"
#include "signal/sigframe.h"
#include "vm/vm.h"
#include "vm/xstate.h"
#include "x86.h"

/* ---- the extended state in a frame ---- */

#define MAGIC1       0x46505853u        /* FP_XSTATE_MAGIC1, FP_XSTATE_MAGIC2 */
#define MAGIC2       0x46505845u

/* Stores the area at `at`; size bytes and the second magic number. */
static int xstate_save(struct thread *t, uint64_t at, uint32_t size)
{
        const uint32_t magic2 = MAGIC2;
        struct xstate x;

        xstate_get(t, &x);
        memset(&x.sw, 0, sizeof(x.sw));
        if (!t->vm->xcr0)
                return gmem_write(t, at, &x, FXSAVE_SIZE);
        x.sw.magic1 = MAGIC1;
        x.sw.extended_size = size + (uint32_t)sizeof(magic2);
        x.sw.features = t->vm->xcr0;
        x.sw.size = size;
        x.bv |= XSTATE_FP | XSTATE_SSE;
        memcpy((char *)&x + size, &magic2, sizeof(magic2));
        return gmem_write(t, at, &x, size + sizeof(magic2));
}

/* Reads the area and finds out which of its features count.  Like Linux, takes it for an FXSAVE
 * area if a magic number is missing. */
static int xstate_read(struct thread *t, uint64_t at, struct xstate *x, uint64_t *features)
{
        uint32_t size = xstate_size(t->vm), magic2 = 0;

        memset(x, 0, t->vm->xsave_size);
        if (gmem_read(t, x, at, FXSAVE_SIZE))
                return -EFAULT;
        bool whole = t->vm->xcr0 && x->sw.magic1 == MAGIC1 && x->sw.size >= XHEADER_END &&
                     x->sw.size <= size && x->sw.size <= x->sw.extended_size;
        if (whole && gmem_read(t, &magic2, at + x->sw.size, sizeof(magic2)))
                return -EFAULT;
        if (magic2 != MAGIC2) {
                *features = x->bv = XSTATE_FP | XSTATE_SSE;
                return at % 16 ? -EFAULT : 0;
        }
        *features = x->sw.features & t->vm->xcr0;
        return at % 64 ? -EFAULT : gmem_read(t, &x->bv, at + FXSAVE_SIZE, x->sw.size - FXSAVE_SIZE);
}

/* As XRSTOR would: -EFAULT where it would fault; features that are missing get their initial
 * state. */
static int xstate_restore(struct thread *t, uint64_t at)
{
        struct xstate x;
        uint64_t features;

        if (!at) {
                xstate_reset(t);
                return 0;
        }
        if (xstate_read(t, at, &x, &features))
                return -EFAULT;
        if ((t->vm->xcr0 && (x.bv & ~t->vm->xcr0)) || x.comp_bv || x.header[0])
                return -EFAULT;
        if ((features & (XSTATE_SSE | XSTATE_YMM)) == 0)
                x.mxcsr = MXCSR_INIT;
        if (x.mxcsr & ~xstate_mxcsr_mask())
                return -EFAULT;
        x.bv &= features;
        if (!(x.bv & XSTATE_FP))
                xstate_init_fp(&x);
        if (!(x.bv & XSTATE_SSE))
                memset(x.xmm, 0, sizeof(x.xmm));
        /* so that KVM takes MXCSR, which counts even if the registers do not */
        x.bv |= XSTATE_FP | XSTATE_SSE;
        memset(x.header, 0, sizeof(x.header));
        return ioctl(t->vcpu_fd, KVM_SET_XSAVE, &x) < 0 ? -EFAULT : 0;
}

/* ---- the alternate stack ---- */

#define AUTODISARM   INT32_MIN         /* SS_AUTODISARM, 1 << 31 */
#define MINSIGSTKSZ_ 2048

static bool inside(const struct altstack *alt, uint64_t sp)
{
        return sp > alt->sp && sp - alt->sp <= alt->size;
}

/* A stack that disarms itself never counts as in use. */
static bool on_altstack(const struct altstack *alt, uint64_t sp)
{
        return !(alt->flags & AUTODISARM) && inside(alt, sp);
}

static int32_t altstack_state(const struct altstack *alt, uint64_t sp)
{
        return !alt->size ? SS_DISABLE : on_altstack(alt, sp) ? SS_ONSTACK : 0;
}

int sigframe_altstack(struct thread *t, const struct altstack *new, struct altstack *old)
{
        struct altstack *alt = &t->signal.alt;
        uint64_t sp = t->v->regs.rsp;

        if (old)
                *old = (struct altstack){ .sp = alt->sp,
                                          .size = alt->size,
                                          .flags = altstack_state(alt, sp) |
                                                   (alt->flags & AUTODISARM) };
        if (!new)
                return 0;
        if (on_altstack(alt, sp))
                return -EPERM;
        int32_t mode = new->flags & ~AUTODISARM;
        if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0)
                return -EINVAL;
        if (mode != SS_DISABLE && new->size < MINSIGSTKSZ_)
                return -ENOMEM;
        *alt = (struct altstack){ .flags = new->flags };
        if (mode != SS_DISABLE) {
                alt->sp = new->sp;
                alt->size = new->size;
        }
        return 0;
}

/* ---- the frame ---- */

enum { UC_FP_XSTATE = 1, UC_SIGCONTEXT_SS = 2, UC_STRICT_RESTORE_SS = 4 };
#define SA_RESTORER_      0x04000000ull
#define RED_ZONE          128

struct frame {
        uint64_t restorer;
        uint64_t flags, link;
        struct altstack stack;
        uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip,
                rflags;
        uint16_t cs, gs, fs, ss;
        uint64_t err, trapno, oldmask, cr2, fpstate, reserved[8];
        uint64_t mask;
        uint8_t info[128];              /* siginfo_t */
};
#define FRAME_UC offsetof(struct frame, flags)
_Static_assert(sizeof(struct frame) == 440 && offsetof(struct frame, mask) == 304 &&
                       sizeof(siginfo_t) == 128,
               "struct frame is Linux's");

#define EACH_REGISTER(DO)                                                                        \
        DO(r8) DO(r9) DO(r10) DO(r11) DO(r12) DO(r13) DO(r14) DO(r15)                            \
        DO(rdi) DO(rsi) DO(rbp) DO(rbx) DO(rdx) DO(rax) DO(rcx) DO(rsp) DO(rip)

/* Program and kern share selectors, which differ with the privilege level; the program sees
 * Linux's. */
static void fill_frame(struct thread *t, struct frame *f, const struct ksigaction *k,
                       const siginfo_t *info, uint64_t mask)
{
        const struct regs *r = &t->v->regs;
        const struct thread_signals *s = &t->signal;

        *f = (struct frame){
                .restorer = k->restorer, .stack = s->alt,
                .flags = UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | (t->vm->xcr0 ? UC_FP_XSTATE : 0),
                .rflags = r->rflags | X86_IF, .cs = SEL_USER_CS, .ss = SEL_USER_SS,
                .err = s->err, .trapno = s->trapno, .cr2 = s->cr2, .oldmask = mask, .mask = mask,
        };
#define SAVE(reg) f->reg = r->reg;
        EACH_REGISTER(SAVE)
        memcpy(f->info, info, sizeof(f->info));
}

/* Room for frame and extended state below the program's stack pointer, or on the alternate stack.
 * 0: none. */
static uint64_t find_room(struct thread *t, const struct ksigaction *k, uint32_t xsize,
                          uint64_t *xstate)
{
        const struct altstack *alt = &t->signal.alt;
        uint64_t sp = t->v->regs.rsp;
        bool on_alt = on_altstack(alt, sp);

        sp -= RED_ZONE;
        if ((k->flags & SA_ONSTACK) && altstack_state(alt, sp) == 0) {
                sp = alt->sp + alt->size;
                on_alt = true;
        }
        *xstate = (sp - xsize) & ~63ull;
        sp = ((*xstate - sizeof(struct frame)) & ~15ull) - 8;   /* as after a call */
        return on_alt && !inside(alt, sp) ? 0 : sp;
}

int sigframe_push(struct thread *t, const struct ksigaction *k, const siginfo_t *info,
                  uint64_t mask)
{
        struct regs *r = &t->v->regs;
        uint32_t xsize = xstate_size(t->vm);
        struct frame f;
        uint64_t xstate, sp = find_room(t, k, xsize + sizeof(uint32_t), &xstate);

        if (!sp || !(k->flags & SA_RESTORER_) || xstate_save(t, xstate, xsize))
                return -EFAULT;
        fill_frame(t, &f, k, info, mask);
        f.fpstate = xstate;
        if (gmem_write(t, sp, &f, sizeof(f)))
                return -EFAULT;
        r->rdi = (uint64_t)info->si_signo;
        r->rsi = sp + offsetof(struct frame, info);
        r->rdx = sp + FRAME_UC;
        r->rax = 0;
        r->rip = k->handler;
        r->rsp = sp;
        r->rflags = (r->rflags & ~(X86_DF | X86_RF | X86_TF)) | X86_IF;
        xstate_reset(t);
        if (t->signal.alt.flags & AUTODISARM)
                t->signal.alt = (struct altstack){ .flags = SS_DISABLE };
        return 0;
}

int sigframe_pop(struct thread *t, uint64_t *mask)
{
        struct regs *r = &t->v->regs;
        struct frame f;

        /* The handler's ret has taken the restorer's address. */
        if (gmem_read(t, &f.flags, r->rsp, offsetof(struct frame, info) - FRAME_UC))
                return -EFAULT;
        *mask = f.mask;
#define RESTORE(reg) r->reg = f.reg;
        EACH_REGISTER(RESTORE)
        /* In ring 0 a popfq may have cleared IF, which on Linux no program can. */
        r->rflags = (r->rflags & ~X86_FLAGS_OF_USER) | (f.rflags & X86_FLAGS_OF_USER) |
                    X86_IF;
        if (xstate_restore(t, f.fpstate))
                return -EFAULT;
        sigframe_altstack(t, &f.stack, NULL);   /* as on Linux, a bad stack is not an error */
        return 0;
}
