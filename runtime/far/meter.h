/*
 * How long the pages of remote nodes take, for --stats.  Without statistics nothing is measured,
 * and all times are 0.
 *
 * Written by the one thread that does the I/O; read by any.
 */
#ifndef VMRUN_FAR_METER_H
#define VMRUN_FAR_METER_H

#include <stdbool.h>
#include <stdint.h>
#include "base/options.h"
#include "common/buckets.h"
#include "far/node.h"

struct meter { uint64_t bucket[HIST_BUCKETS], ticks; };
/* Parts of a sampled fetch: from when its vCPU asked until it went to its driver; and from then
 * until the I/O side saw that it was over. */
extern struct meter meter_queue, meter_wire;
/* Pages read and written, by node: from when the request came off its ring. */
extern struct meter meter_node[NODES_MAX][2];

/* The host's TSC, or 0. */
static inline uint64_t meter_now(void) { return opt.stats ? __builtin_ia32_rdtsc() : 0; }
/* A sampled fetch is over.  asked: by the guest's TSC. */
void meter_fetch(uint64_t asked, uint64_t sent);
/* A page of a node was moved. */
void meter_page(const struct far_node *n, bool write, uint64_t taken);

#endif
