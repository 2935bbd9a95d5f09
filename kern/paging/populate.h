/*
 * Makes pages resident before they are touched.  The caller holds no lock.
 */
#ifndef VMRUN_POPULATE_H
#define VMRUN_POPULATE_H

#include <stdint.h>

/* Makes the mapped pages of [start, end) resident, writable where the program may write its own
 * copy; at most max pages.  Returns the first error of fault_in(); -EFAULT for PROT_NONE.  Holes
 * are skipped. */
int mm_populate(uint64_t start, uint64_t end, uint64_t max);

/* mm_populate() for the VMAs of the range that are locked as a whole.  Locks the pages, and
 * continues after PROT_NONE. */
int mm_populate_locked(uint64_t start, uint64_t end);

#endif
