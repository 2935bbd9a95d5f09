/*
 * The sum by which a page that comes back from a node is known to be the one that was sent there.
 */
#ifndef VMRUN_FAR_SUM_H
#define VMRUN_FAR_SUM_H

#include <stdint.h>

/* CRC32C of a page of PAGE_SIZE bytes, begun with the number of its slot: so a page that belongs
 * elsewhere does not fit either.  In the modules of drivers, for the library that computes it. */
uint32_t far_sum(uint64_t slot, const void *page);

#endif
