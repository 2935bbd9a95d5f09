/*
 * Memory nodes that are made as slow as a node behind a network (latency=, bandwidth=).
 */
#ifndef VMRUN_FAR_TIMING_H
#define VMRUN_FAR_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include "abi_slab.h"
#include "base/options.h"

static inline bool timing_given(const struct node_option *o) { return o->latency || o->bandwidth; }
/* Makes a slab of such a node SLAB_TIMED; leaves others as they are. */
void timing_slab(struct slab *s, const struct node_option *o, uint64_t tsc_khz);
/* Text of size n at text: ", as if behind a network of 2400 ns and 12.5 GB/s", or "". */
void timing_text(const struct node_option *o, char *text, size_t n);

#endif
