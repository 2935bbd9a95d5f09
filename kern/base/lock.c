/*
 * Locks between vCPUs.
 *
 * A holder never waits for a vCPU that waits for the lock.  But its host thread may not be running,
 * and the holder of mm_lock may wait for pages that are on their way from a node, in an outage for
 * minutes.  So a taker spins for a while, then sleeps.
 *
 * [I] No wake-up is lost.  A taker sleeps only while the word is AWAITED, which the host compares
 * under its own lock.  The holder exchanges the word for FREE and wakes one taker if it was
 * AWAITED.  The woken taker sets AWAITED again, since it cannot know whether others sleep.  If that
 * taker is killed first (the child of a vfork), the other takers look again when their sleep's
 * limit has passed.
 */
#include "base/cpu.h"
#include "base/exit.h"
#include "base/lock.h"
#include "pager/env.h"

void env_relax(unsigned spins)
{
        if (spins % 128 == 127)
                vmexit(EXIT_YIELD, 0, 0, 0);
        else
                cpu_relax();
}

enum { LOCK_FREE, LOCK_TAKEN, LOCK_AWAITED };

/* Eight of these spins yield.  Range operations that wait for no node are shorter than this. */
#define LOCK_SPINS 1024

void lock_take(struct lock *l)
{
        /* Acquire, here and below: sees all that the last holder wrote before its release in
         * lock_drop. */
        for (unsigned spins = 0; spins < LOCK_SPINS; spins++) {
                uint32_t seen = LOCK_FREE;
                if (atomic_compare_exchange_strong_explicit(
                            &l->v, &seen, LOCK_TAKEN, memory_order_acquire, memory_order_relaxed))
                        return;
                env_relax(spins);
        }
        while (atomic_exchange_explicit(&l->v, LOCK_AWAITED, memory_order_acquire) != LOCK_FREE)
                vmexit(EXIT_WAIT_PTE, (uint64_t)&l->v, LOCK_AWAITED, 1);
}

void lock_drop(struct lock *l)
{
        if (atomic_exchange_explicit(&l->v, LOCK_FREE, memory_order_release) == LOCK_AWAITED)
                vmexit(EXIT_WAKE_PTE, (uint64_t)&l->v, 1, 0);
}
