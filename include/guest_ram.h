/*
 * Addresses of guest RAM in the window, which kern and vmrun share (layout.h).
 */
#ifndef VMRUN_GUEST_RAM_H
#define VMRUN_GUEST_RAM_H

#include <stdint.h>
#include "abi_control.h"

/* Guest-physical address <-> address in the window. */
static inline void *window_va(uint64_t gpa) { return (void *)(gpa - RAM_GPA + WINDOW); }
static inline uint64_t window_gpa(const void *va) { return (uint64_t)va - WINDOW + RAM_GPA; }

/* The content of frame f. */
static inline void *frame_host(uint32_t f)
{
        return (void *)(WINDOW + CONTROL->frames_off + (uint64_t)f * PAGE_SIZE);
}

/* Guest-physical page number of frame 0. */
static inline uint64_t frame_pfn0(void)
{
        return (RAM_GPA + CONTROL->frames_off) >> PAGE_SHIFT;
}

/* The frame at a guest-physical address.  No frame is there if it is not below CONTROL->nframes. */
static inline uint64_t frame_of_gpa(uint64_t gpa)
{
        return (gpa >> PAGE_SHIFT) - frame_pfn0();
}

#endif
