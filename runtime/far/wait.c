/*
 * The polling time of a vCPU, learnt from the waits that end.  See wait.h.
 */
#include <stdatomic.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/options.h"
#include "far/wait.h"

/* How long a vCPU polls an entry before it sleeps.  Sleeping and waking normally cost more than a
 * node takes to answer, but polling for a slow node takes a CPU from other threads. */
#define WAIT_LEAST_US 20
#define WAIT_MOST_US  4000

/* The value until a node has answered, and for good if all tiers are memory.  There the vCPU that
 * found the page copies it itself, in about a microsecond, so another vCPU that meets the page
 * meanwhile sees it arrive.  If the copying vCPU's thread does not run, or the host has to allocate
 * the page first, sleeping is right.  A sleep costs about 20 us (two exits, two futex calls, the
 * wake-up of another thread), so polling that long first never costs more than twice the better
 * choice. */
void wait_first(void)
{
        /* Relaxed: a hint. */
        atomic_store_explicit(&CONTROL->wait_ticks, WAIT_LEAST_US * CONTROL->tsc_khz / 1000,
                              memory_order_relaxed);
}

/* Sets the wait to twice the average of about the last eight reads; or to the shortest wait, if
 * that is too long, or if there are not enough CPUs for all vCPUs and this thread. */
void wait_learn(uint64_t took)
{
        static uint64_t average;        /* ticks; of the I/O side */
        static unsigned cpus;           /* of this host; 0: not counted yet */
        uint64_t us = CONTROL->tsc_khz / 1000, wait;

        if (opt.io != IO_THREAD)
                return;
        if (!cpus)
                cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
        average = average ? average - average / 8 + took / 8 : took;
        wait = 2 * average;
        if (wait > WAIT_MOST_US * us || wait < WAIT_LEAST_US * us ||
            atomic_load(&CONTROL->nvcpus) > cpus)
                wait = WAIT_LEAST_US * us;
        /* Relaxed: a hint. */
        atomic_store_explicit(&CONTROL->wait_ticks, wait, memory_order_relaxed);
}
