/*
 * In place of kern's base/cpu.h, before every source under test (-include): its instructions are
 * the simulation's, and a vCPU's block is where a pointer says that moves with the CPU.
 */
#define VMRUN_CPU_H
#ifndef TEST_LINES_CPU_H
#define TEST_LINES_CPU_H

#include <stdint.h>

/* kern.h declares these names as structs. */
#define vcpu_self       (*lines_self)
#define vcpu_self_stats (*lines_self_stats)
#define vcpu_self_fixed (*lines_self_fixed)

/* libtsan cannot follow fences; the simulation need not. */
#if defined __GNUC__ && !defined __clang__ && __GNUC__ >= 11
#pragma GCC diagnostic ignored "-Wtsan"
#endif

void cpu_exit(void);
void cpu_ring_doorbell(void);
static inline void cpu_store_fence(void) {}
void cpu_relax(void);
uint64_t cpu_tsc(void);
void cpu_flush_tlb(int level);

#endif
