/*
 * Every privileged or special instruction that kern's C code executes.
 */
#ifndef VMRUN_CPU_H
#define VMRUN_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include "layout.h"

static inline void cpu_exit(void)
{
        __asm__ volatile("outl %%eax, %0" :: "i"(EXIT_PORT), "a"(0) : "memory");
}

/* Answered inside KVM (an ioeventfd). */
static inline void cpu_ring_doorbell(void)
{
        __asm__ volatile("outb %%al, %0" :: "i"(DOORBELL_PORT), "a"(0) : "memory");
}

/* All stores before it are seen before those after it, whatever the types of their memory. */
static inline void cpu_store_fence(void) { __asm__ volatile("sfence" ::: "memory"); }

static inline void cpu_relax(void) { __asm__ volatile("pause"); }

static inline uint64_t cpu_tsc(void)
{
        uint32_t lo, hi;
        __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
        return (uint64_t)hi << 32 | lo;
}

/* Drops all non-global translations: a CR3 reload, by the gate (entry/entry.S) where kern does not
 * run in ring 0. */
static inline void cpu_flush_tlb(int level)
{
        if (level == 0) {
                uint64_t cr3;
                __asm__ volatile("mov %%cr3, %0; mov %0, %%cr3" : "=r"(cr3) :: "memory");
        } else {
                __asm__ volatile("call flush_gate" ::: "memory");
        }
}

/* x87, SSE, AVX and AVX-512 (Intel SDM vol. 1, 13.1): the state that compiled code uses by
 * itself. */
#define CPU_XSAVE_MASK 0xe7u

/* The extended state of the program, which kern itself does not use.  area: aligned to 64 bytes;
 * its header is zero before it is first used.  xsave: else there is no more than FXSAVE saves. */
static inline void cpu_save_extended(void *area, bool xsave)
{
        if (xsave)
                __asm__ volatile("xsave64 (%0)" :: "r"(area), "a"(CPU_XSAVE_MASK), "d"(0)
                                 : "memory");
        else
                __asm__ volatile("fxsave64 (%0)" :: "r"(area) : "memory");
}

static inline void cpu_load_extended(const void *area, bool xsave)
{
        if (xsave)
                __asm__ volatile("xrstor64 (%0)" :: "r"(area), "a"(CPU_XSAVE_MASK), "d"(0)
                                 : "memory");
        else
                __asm__ volatile("fxrstor64 (%0)" :: "r"(area) : "memory");
}

static inline void cpu_set_fs(uint64_t base) { __asm__ volatile("wrfsbase %0" :: "r"(base)); }
static inline void cpu_set_gs(uint64_t base) { __asm__ volatile("wrgsbase %0" :: "r"(base)); }
static inline uint64_t cpu_fs(void)
{
        uint64_t b;
        __asm__ volatile("rdfsbase %0" : "=r"(b));
        return b;
}

static inline uint64_t cpu_gs(void)
{
        uint64_t b;
        __asm__ volatile("rdgsbase %0" : "=r"(b));
        return b;
}

#endif
