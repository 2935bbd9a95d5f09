/*
 * The sum by which bytes that come back from a node are known to be those that were sent there.
 */
#ifndef VMRUN_FAR_SUM_H
#define VMRUN_FAR_SUM_H

#include <stddef.h>
#include <stdint.h>

/* CRC32C of n bytes, without its complements: so the sum of two runs of bytes is that of the second
 * begun with the sum of the first, and it is linear (sums.h).  In the modules of drivers, for the
 * library that computes it. */
typedef uint32_t far_sum_fn(uint32_t begun, const void *bytes, size_t n);
far_sum_fn far_sum;

#endif
