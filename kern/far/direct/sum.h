/*
 * Is a page that came from a node what was sent there?  As the host does it (runtime/far/sums.h),
 * with the CPU's CRC32 instruction.
 */
#ifndef VMRUN_DIRECT_SUM_H
#define VMRUN_DIRECT_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* Before the first direct_sum_fits(), by one vCPU. */
void direct_sum_init(void);
/* Of a slot that this process holds, and whose page a node has.  page: PAGE_SIZE bytes. */
bool direct_sum_fits(uint64_t slot, const void *page);

#endif
