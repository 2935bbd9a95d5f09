/*
 * TLB flushes of all vCPUs, by epochs.
 *
 * A vCPU that wants a flush increments control.flush_epoch.  Each vCPU flushes before it next
 * becomes PROGRAM (entry/entry.S looks at the epoch after it stored PROGRAM and a full barrier),
 * and notes the epoch it has reached.  A flush is complete once each vCPU either was seen outside
 * PROGRAM or has flushed up to its epoch: kern and host use no translation of the program.  Only
 * vCPUs that stay in PROGRAM are kicked and waited for, so a vCPU in kern that spins on a lock of
 * the waiting vCPU cannot deadlock with it.  [I]
 *
 * One vCPU at a time looks at all others, and tells how far they all have come; a flush costs each
 * vCPU that waits, or wonders, a look at one word.
 */
#include "base/cpu.h"
#include "base/exit.h"
#include "base/flush.h"
#include "base/kern.h"
#include "pager/env.h"

/* The last flush that is known to be complete.  Only grows: the one vCPU that has set `looking`
 * stores it, after a look at all vCPUs; all others read it. */
static _Atomic uint64_t done_epoch;
static _Atomic uint32_t looking;

/* When a vCPU was last kicked (TSC); 0: it has flushed since. */
static _Atomic uint64_t kicked[VCPUS_MAX];

void flush_self(void)
{
        _Atomic uint64_t *mine = &kicked[vcpu_self_fixed.number];
        uint64_t e = atomic_load(&control.flush_epoch);
        cpu_flush_tlb(vcpu_self_fixed.level);
        count(CNT_FLUSHES);
        /* Full barrier: a kicker that marks this vCPU too late to be seen here sees the epoch
         * (is_to_be_kicked). */
        atomic_store(&vcpu_self.flushed, e);
        if (atomic_load_explicit(mine, memory_order_relaxed))
                atomic_store_explicit(mine, 0, memory_order_relaxed);
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

static bool in_program(struct vcpu *v) { return atomic_load(&v->mode) == MODE_PROGRAM; }

bool env_flush_done(uint64_t epoch)
{
        /* acquire: what the vCPUs did before the looker saw them is over */
        return epoch <= atomic_load_explicit(&done_epoch, memory_order_acquire);
}

void env_flush_look(void)
{
        /* Before the modes: a vCPU that is then outside PROGRAM flushes this far before it is
         * back. */
        uint64_t reached = atomic_load(&control.flush_epoch);

        if (env_flush_done(reached) || atomic_exchange(&looking, 1))
                return;
        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
        for (uint32_t i = 0; i < n; i++) {
                struct vcpu *v = vcpu_block(i);
                uint64_t flushed = in_program(v) ? atomic_load(&v->flushed) : reached;
                if (flushed < reached)
                        reached = flushed;
        }
        /* A vCPU that has become PROGRAM, and not flushed yet, may be behind what others saw. */
        if (!env_flush_done(reached))
                atomic_store_explicit(&done_epoch, reached, memory_order_release);
        atomic_store_explicit(&looking, 0, memory_order_release);
}

#define SPINS_BEFORE_KICK 64            /* a vCPU that faults often flushes on its own */
/* A vCPU whose thread the host does not run takes a kick when it runs again: so a kick is repeated
 * only after this time.  It may be lost: the child of vfork that sent it was killed, or an
 * exception went first (runtime/vm/vcpu.c). */
#define KICK_AGAIN_MS 40

static bool needs_flush(struct vcpu *v, uint64_t epoch)
{
        return in_program(v) && atomic_load(&v->flushed) < epoch;
}

/* Marks vCPU n.  False: it has flushed, or another vCPU's kick is on its way. */
static bool is_to_be_kicked(uint32_t n, uint64_t epoch, uint64_t now)
{
        uint64_t last = atomic_load_explicit(&kicked[n], memory_order_relaxed);

        if (!needs_flush(vcpu_block(n), epoch) ||
            (last && (int64_t)(now - last) < (int64_t)(KICK_AGAIN_MS * control.tsc_khz)) ||
            !atomic_compare_exchange_strong(&kicked[n], &last, now))
                return false;
        /* Else the mark of a kick that it does not need would keep the next one away. */
        if (needs_flush(vcpu_block(n), epoch))
                return true;
        atomic_store_explicit(&kicked[n], 0, memory_order_relaxed);
        return false;
}

static void kick(uint64_t epoch)
{
        struct exit_kick out = { { 0 } };
        uint64_t now = cpu_tsc();
        bool any = false;

        uint32_t n = atomic_load_explicit(&control.nvcpus, memory_order_acquire);
        for (uint32_t i = 0; i < n; i++)
                if (is_to_be_kicked(i, epoch, now)) {
                        out.vcpus[i / 64] |= 1ull << i % 64;
                        count(CNT_KICKS);
                        any = true;
                }
        if (any)
                vmexit(EXIT_KICK, (uint64_t)&out, 0, 0);
}

void flush_wait(uint64_t epoch)
{
        for (unsigned spins = 0; !env_flush_done(epoch); spins++) {
                env_flush_look();
                if (spins % 1024 == SPINS_BEFORE_KICK)
                        kick(epoch);
                env_relax(spins);
        }
}
