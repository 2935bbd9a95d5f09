/*
 * A vCPU's extended state in KVM: read, set, copied, kept for the parent of a vfork.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include "base/message.h"
#include "vm/vm.h"
#include "vm/xstate.h"

uint32_t xstate_size(const struct vm *vm)
{
        uint32_t size = vm->xcr0 ? XHEADER_END : FXSAVE_SIZE;

        for (uint32_t i = 0; i < vm->cpuid->nent; i++) {
                const struct kvm_cpuid_entry2 *e = &vm->cpuid->entries[i];
                if (e->function == 0xd && e->index >= 2 && e->index < 63 &&
                    (vm->xcr0 >> e->index & 1) && e->ebx + e->eax > size)
                        size = e->ebx + e->eax;
        }
        return size;
}

uint32_t xstate_mxcsr_mask(void)
{
        static uint32_t mask;
        if (!mask) {
                struct xstate x;
                memset(&x, 0, FXSAVE_SIZE);
                __asm__ volatile("fxsave %0" : "+m"(x));
                mask = x.mxcsr_mask ? x.mxcsr_mask : 0xffbf;
        }
        return mask;
}

void xstate_get(struct thread *t, struct xstate *x)
{
        if (t->vm->xsave_size > sizeof(*x))
                die_(EXIT_VMRUN_FAILED,
                     "this CPU's extended state has %u bytes, more than vmrun knows",
                     t->vm->xsave_size);
        if (ioctl(t->vcpu_fd, t->vm->xsave2 ? KVM_GET_XSAVE2 : KVM_GET_XSAVE, x) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM_GET_XSAVE: %s", strerror(errno));
}

static void xstate_set(struct thread *t, const struct xstate *x)
{
        if (ioctl(t->vcpu_fd, KVM_SET_XSAVE, x) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM_SET_XSAVE: %s", strerror(errno));
}

void xstate_init_fp(struct xstate *x)
{
        memset(x, 0, offsetof(struct xstate, mxcsr));
        memset(x->st, 0, sizeof(x->st));
        x->fcw = FCW_INIT;
}

void xstate_reset(struct thread *t)
{
        struct xstate x;

        memset(&x, 0, t->vm->xsave_size);
        xstate_init_fp(&x);
        x.mxcsr = MXCSR_INIT;
        /* set so that MXCSR counts; features without a bit are in their initial state */
        x.bv = XSTATE_FP | XSTATE_SSE;
        xstate_set(t, &x);
}

void xstate_copy(struct thread *from, struct thread *to)
{
        struct xstate x;

        xstate_get(from, &x);
        x.bv |= XSTATE_FP | XSTATE_SSE; /* so that MXCSR counts */
        xstate_set(to, &x);
}

void *xstate_keep(struct thread *t)
{
        struct xstate *x = aligned_alloc(_Alignof(struct xstate), sizeof(*x));

        if (x) {
                xstate_get(t, x);
                x->bv |= XSTATE_FP | XSTATE_SSE;
        }
        return x;
}

void xstate_bring_back(struct thread *t, void *kept)
{
        xstate_set(t, kept);
        free(kept);
}

int xstate_fpe_code(struct thread *t, unsigned vector)
{
        struct xstate x;

        xstate_get(t, &x);
        /* Exceptions that are raised and not masked. */
        uint32_t e = vector == 16 ? x.fsw & ~x.fcw & 0x3f : x.mxcsr & ~(x.mxcsr >> 7) & 0x3f;
        return e & 0x01   ? FPE_FLTINV
               : e & 0x04 ? FPE_FLTDIV
               : e & 0x08 ? FPE_FLTOVF
               : e & 0x12 ? FPE_FLTUND
               : e & 0x20 ? FPE_FLTRES
                          : FPE_FLTINV;
}
