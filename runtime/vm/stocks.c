/*
 * Stocks of free frames are taken back.  See stocks.h.
 *
 * [I] A stock belongs to kern on its vCPU, but while the vCPU's mode is TAKEN.  Only OUT becomes
 * TAKEN, and kern waits until it is OUT again before it goes on (kern/base/exit.c).
 */
#include <stdatomic.h>
#include "abi_control.h"
#include "vm/stocks.h"
#include "vm/vcpu.h"

/* False: the vCPU is in the guest. */
static bool take(struct vcpu *v, struct frame_chain *taken)
{
        uint32_t out = MODE_OUT;

        /* Acquire: sees the stock as kern has left it. */
        if (!atomic_compare_exchange_strong(&v->mode, &out, MODE_TAKEN))
                return false;
        *taken = v->frames.free;
        v->frames.free.n = 0;
        /* Release: kern sees that it is empty. */
        atomic_store_explicit(&v->mode, MODE_OUT, memory_order_release);
        return true;
}

/* kern gives its stock back before the vCPU runs the program again.  If the vCPU has just begun to
 * run it, the next look finds it there. */
static void ask(struct vcpu *v, struct thread *t)
{
        atomic_fetch_or(&v->event, EVENT_STOCK);
        if (atomic_load(&v->mode) == MODE_PROGRAM)
                vcpu_kick(t);
}

void stocks_take(struct vm *vm, struct exit_stocks *s)
{
        const uint32_t vcpus = atomic_load(&CONTROL->nvcpus);
        uint32_t n = 0, left = 0;       /* not in *s, which is in kern's memory */

        for (uint32_t i = 0; i < vcpus && i < VCPUS_MAX; i++) {
                struct vcpu *v = vcpu_block(i);
                /* A hint: kern may be using its stock. */
                if (!__atomic_load_n(&v->frames.free.n, __ATOMIC_RELAXED))
                        continue;
                if (n < STOCKS_TAKEN && take(v, &s->chain[n])) {
                        n += s->chain[n].n > 0;
                        continue;
                }
                left = 1;
                ask(v, vm->thread[i]);
        }
        s->n = n;
        s->left = left;
}
