/*
 * TLB flushes of all vCPUs, by epochs.
 *
 * A vCPU that wants a flush increments control.flush_epoch.  Each vCPU flushes before it next
 * becomes PROGRAM (entry/entry.S looks at the epoch after it stored PROGRAM and a full barrier),
 * and notes the epoch it has reached.  A flush is complete once each vCPU either was seen outside
 * PROGRAM or has flushed up to its epoch: kern and host use no translation of the program.  Only
 * vCPUs that stay in PROGRAM are kicked and waited for, so a vCPU in kern that spins on a lock of
 * the waiting vCPU cannot deadlock with it.  [I]
 */
#include "base/cpu.h"
#include "base/exit.h"
#include "base/flush.h"
#include "base/kern.h"
#include "pager/env.h"

/* A completed epoch; only grows.  A hint that saves looking at every vCPU. */
static _Atomic uint64_t done_epoch;

void flush_self(void)
{
        uint64_t e = atomic_load(&control.flush_epoch);
        cpu_flush_tlb(vcpu_self_fixed.level);
        count(CNT_FLUSHES);
        atomic_store_explicit(&vcpu_self.flushed, e, memory_order_release);
}

uint64_t env_flush_begin(void)
{
        /* seq_cst: after the caller's changes of entries */
        return atomic_fetch_add(&control.flush_epoch, 1) + 1;
}

uint64_t env_flush_next(void)
{
        return atomic_load(&control.flush_epoch) + 1;
}

static bool has_flushed(struct vcpu *v, uint64_t epoch)
{
        return atomic_load(&v->mode) != MODE_PROGRAM || atomic_load(&v->flushed) >= epoch;
}

bool env_flush_done(uint64_t epoch)
{
        if (epoch <= atomic_load_explicit(&done_epoch, memory_order_acquire))
                return true;
        if (epoch > atomic_load(&control.flush_epoch))
                return false;
        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
        for (uint32_t i = 0; i < n; i++)
                if (!has_flushed(vcpu_block(i), epoch))
                        return false;
        uint64_t d = atomic_load(&done_epoch);
        while (d < epoch && !atomic_compare_exchange_weak(&done_epoch, &d, epoch))
                ;
        return true;
}

#define SPINS_BEFORE_KICK 64            /* a vCPU that faults often flushes on its own */

void flush_wait(uint64_t epoch)
{
        for (unsigned spins = 0; !env_flush_done(epoch); spins++) {
                if (spins % 1024 == SPINS_BEFORE_KICK) {
                        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
                        for (uint32_t i = 0; i < n; i++) {
                                if (has_flushed(vcpu_block(i), epoch))
                                        continue;
                                count(CNT_KICKS);
                                vmexit(EXIT_KICK, i, 0, 0);
                        }
                }
                env_relax(spins);
        }
}

void flush_all(void)
{
        uint64_t e = env_flush_begin();
        flush_self();
        flush_wait(e);
}
