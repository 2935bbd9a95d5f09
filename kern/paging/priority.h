/*
 * Priorities: which pages are evicted first (vmg_priority).
 */
#ifndef VMRUN_PRIORITY_H
#define VMRUN_PRIORITY_H

#include <stdint.h>
#include "pager/pte.h"

/* The pages of [start, end) that the program has touched have this priority from now on: PTE_HIGH,
 * PTE_LOW or 0.  Returns how many they are. */
int64_t priority_set(uint64_t start, uint64_t end, pte_t priority);

#endif
