/*
 * Makes pages resident before they are touched.  The caller holds no lock.
 */
#ifndef VMRUN_POPULATE_H
#define VMRUN_POPULATE_H

#include <stdint.h>

/* Makes what is mapped in [start, end) resident, writable where the program may write its own copy;
 * at most max pages.  Returns the first error of fault_in(); -EFAULT for PROT_NONE.  Holes are
 * skipped. */
int mm_populate(uint64_t start, uint64_t end, uint64_t max);

/* The same for what is locked as a whole there, and locks the pages; after PROT_NONE it continues
 * with the rest. */
int mm_populate_locked(uint64_t start, uint64_t end);

#endif
