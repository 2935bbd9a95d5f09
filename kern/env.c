/*
 * The rest of what the pager core asks of its environment (pager/pager.h).
 */
#include "kern.h"
#include "mm.h"

void env_wait_pte(pte_slot_t *pte, pte_t seen) { vmexit(EXIT_WAIT_PTE, (uint64_t)pte, seen, 0); }
void env_wake_pte(pte_slot_t *pte) { vmexit(EXIT_WAKE_PTE, (uint64_t)pte, 0, 0); }
unsigned env_wait_spins(void) { return control.wait_spins; }
void env_uncharge_page(void) { mm_uncharge(1); }
