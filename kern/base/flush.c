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
 * A vCPU in PROGRAM that the host does not run is neither kicked nor waited for, where KVM says so:
 * it is marked, and KVM flushes its TLB before it runs again.  [I]
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
/* Flushes up to this one were left to KVM: it makes them before the vCPU runs again. */
static _Atomic uint64_t left_to_kvm[VCPUS_MAX];

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

/* Up to which epoch vCPU n has flushed, or will before it runs program code again. */
static uint64_t flushed(uint32_t n)
{
        uint64_t by_itself = atomic_load(&vcpu_block(n)->flushed),
                 by_kvm = atomic_load(&left_to_kvm[n]);

        return by_itself > by_kvm ? by_itself : by_kvm;
}

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
                uint64_t e = in_program(vcpu_block(i)) ? flushed(i) : reached;
                if (e < reached)
                        reached = e;
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

static bool needs_flush(uint32_t n, uint64_t epoch)
{
        return in_program(vcpu_block(n)) && flushed(n) < epoch;
}

/* True: the host does not run the vCPU, and KVM will flush its TLB before it does.  The epoch has
 * begun, so that flush covers it, also if another vCPU has asked for it before. */
static bool leave_to_kvm(uint32_t n, uint64_t epoch)
{
        uint8_t seen = STEAL_PREEMPTED;

        /* seq_cst, with KVM, which takes the byte away by an exchange: it sees the flag, or this
         * vCPU sees that the other one runs. */
        if (!atomic_compare_exchange_strong(&control.steal[n].state, &seen,
                                            STEAL_PREEMPTED | STEAL_FLUSH) &&
            seen != (STEAL_PREEMPTED | STEAL_FLUSH))
                return false;
        uint64_t before = atomic_load(&left_to_kvm[n]);
        while (before < epoch && !atomic_compare_exchange_weak(&left_to_kvm[n], &before, epoch))
                ;
        atomic_store_explicit(&kicked[n], 0, memory_order_relaxed);     /* as in flush_self() */
        count(CNT_FLUSHES_KVM);
        return true;
}

/* Marks vCPU n, which needs a flush.  False: it has flushed, or a kick is on its way. */
static bool is_to_be_kicked(uint32_t n, uint64_t epoch, uint64_t now)
{
        uint64_t last = atomic_load_explicit(&kicked[n], memory_order_relaxed);

        if ((last && (int64_t)(now - last) < (int64_t)(KICK_AGAIN_MS * control.tsc_khz)) ||
            !atomic_compare_exchange_strong(&kicked[n], &last, now))
                return false;
        /* Else the mark of a kick that it does not need would keep the next one away. */
        if (needs_flush(n, epoch))
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
                if (needs_flush(i, epoch) && !leave_to_kvm(i, epoch) &&
                    is_to_be_kicked(i, epoch, now)) {
                        out.vcpus[i / 64] |= 1ull << i % 64;
                        count(CNT_KICKS);
                        any = true;
                }
        if (any)
                vmexit(EXIT_KICK, (uint64_t)&out, 0, 0);
}

/* Eight of these spins yield.  A vCPU that runs has then flushed; else its kick waits for the host
 * to run it. */
#define SPINS_BEFORE_NAP 1024
#define NAP_NS 200000

/* Nobody wakes a waiter, as it costs all vCPUs a look at whether one sleeps. */
static void nap(void)
{
        static const uint32_t zero;

        vmexit5(EXIT_WAIT_PTE, (uint64_t)&zero, 0, 1, NAP_NS, 0);
}

void flush_wait(uint64_t epoch)
{
        for (unsigned spins = 0; !env_flush_done(epoch); spins++) {
                env_flush_look();
                if (spins == SPINS_BEFORE_KICK || spins >= SPINS_BEFORE_NAP)
                        kick(epoch);
                if (spins < SPINS_BEFORE_NAP)
                        env_relax(spins);
                else if (!env_flush_done(epoch))
                        nap();
        }
}
