/*
 * The rest of what the pager core asks of its environment (pager/pager.h).
 */
#include "cpu.h"
#include "kern.h"
#include "mm.h"

void env_wait_pte(pte_slot_t *pte, pte_t seen) { vmexit(EXIT_WAIT_PTE, (uint64_t)pte, seen, 0); }
void env_wake_pte(pte_slot_t *pte) { vmexit(EXIT_WAKE_PTE, (uint64_t)pte, 0, 0); }

bool env_wait_on(uint64_t *begun)
{
        uint64_t now = cpu_tsc();

        if (!*begun)
                *begun = now;
        /* Relaxed: the I/O thread's latest opinion, no more. */
        return now - *begun < atomic_load_explicit(&control.wait_ticks, memory_order_relaxed);
}

void env_uncharge_page(void) { mm_uncharge(1); }
