/*
 * Data of this vCPU, and the page that all vCPUs share with the host.
 */
#ifndef VMRUN_KERN_H
#define VMRUN_KERN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi_control.h"
#include "abi_stats.h"
#include "abi_vcpu.h"

/* All of kern is one image: data of other files is reached directly, not through a table of
 * addresses. */
#pragma GCC visibility push(hidden)

/* This vCPU's block, at one address on all vCPUs, and the page that all vCPUs share with the host
 * (kern.lds.S). */
extern struct vcpu vcpu_self;
extern struct vcpu_stats vcpu_self_stats;
extern const struct vcpu_fixed vcpu_self_fixed;
extern uint64_t vcpu_self_xfer[PAGE_SIZE / 8];
extern struct control control;

#pragma GCC visibility pop

static inline struct vcpu_stats *stats(void) { return &vcpu_self_stats; }
static inline uint64_t *counters(void) { return stats()->counter; }
static inline void count(enum vcpu_counter c) { counters()[c]++; }

#endif
