/*
 * Exits to the host (abi_exits.h has the protocol), and upcalls that come while an exit is pending.
 *
 * The function that serves upcalls is above this file, in entry/upcall.c: its address is in the
 * image's header.  The header is mapped without W, so no store of a program at kern's privilege
 * level can change where an upcall goes.
 */
#include "abi_image.h"
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"

/* Serves one upcall.  The function may exit, and its exits may bring further upcalls.  Returns the
 * upcall's answer. */
static int64_t serve(const struct upcall *u)
{
        const struct kern_header *header = (const struct kern_header *)WINDOW;

        return ((int64_t (*)(const struct upcall *))header->upcall)(u);
}

static void out(void)
{
        struct vcpu *v = &vcpu_self;

        /* MODE_OUT tells kickers that this vCPU uses no translation of the program.  This vCPU
         * looks for flushes before it next becomes PROGRAM (entry/entry.S).  Release: a kicker that
         * sees the mode sees all that kern did before. */
        atomic_store_explicit(&v->mode, MODE_OUT, memory_order_release);
        cpu_exit();
        /* Acquire: if the host has taken this vCPU's stock, that is over.  It takes some ten
         * instructions. */
        for (uint32_t m = MODE_OUT; !atomic_compare_exchange_weak_explicit(
                     &v->mode, &m, MODE_KERN, memory_order_acquire, memory_order_relaxed);
             m = MODE_OUT)
                cpu_relax();
}

int64_t vmexit5(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
        struct vcpu *v = &vcpu_self;

        stats()->exits[op]++;
        count(CNT_EXITS);
        v->exit.op = op;
        v->exit.a[0] = a0;
        v->exit.a[1] = a1;
        v->exit.a[2] = a2;
        v->exit.a[3] = a3;
        v->exit.a[4] = a4;
        out();
        while (v->upcall.op != UPCALL_NONE) {
                /* Copied first: serving it may exit, and that exit may bring another upcall. */
                const struct upcall u = v->upcall;
                v->upcall.op = UPCALL_NONE;
                v->upcall.ret = serve(&u);
                stats()->exits[EXIT_UPCALL_DONE]++;
                v->exit.op = EXIT_UPCALL_DONE;
                out();
        }
        return v->exit.ret;
}

int64_t vmexit(enum exit_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        return vmexit5(op, a0, a1, a2, 0, 0);
}
