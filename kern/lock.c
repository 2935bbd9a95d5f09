/*
 * Spin locks between vCPUs.  A holder never waits for a vCPU that waits for the lock, but its host thread may not be running.
 */
#include "cpu.h"
#include "kern.h"

struct lock mm_lock;

void env_relax(unsigned spins)
{
        if (spins % 128 == 127)
                vmexit(EXIT_YIELD, 0, 0, 0);
        else
                cpu_relax();
}

void lock_take(struct lock *l)
{
        /* Acquire: sees what the last holder wrote before its release in lock_drop. */
        for (unsigned spins = 0; atomic_exchange_explicit(&l->v, 1, memory_order_acquire); spins++)
                env_relax(spins);
}

void lock_drop(struct lock *l)
{
        atomic_store_explicit(&l->v, 0, memory_order_release);
}
