/*
 * A vCPU's extended state: x87, SSE, AVX and the other features in XCR0.
 */
#ifndef VMRUN_XSTATE_H
#define VMRUN_XSTATE_H

#include <stddef.h>
#include <stdint.h>
#include "vm/thread.h"

#define XSTATE_MAX   16384
#define XSTATE_FP    1u
#define XSTATE_SSE   2u
#define XSTATE_YMM   4u
#define FXSAVE_SIZE  512
#define XHEADER_END  576
#define FCW_INIT     0x37f
#define MXCSR_INIT   0x1f80

/* The area as XSAVE stores it. In a signal frame the kernel uses the last 48 legacy bytes for its
 * own data. */
struct xstate {
        uint16_t fcw, fsw;
        uint8_t ftw[2];
        uint16_t fop;
        uint64_t fip, fdp;
        uint32_t mxcsr, mxcsr_mask;
        uint8_t st[128], xmm[256], unused[48];
        struct { uint32_t magic1, extended_size; uint64_t features; uint32_t size, pad[7]; } sw;
        uint64_t bv, comp_bv, header[6];
        uint8_t extended[XSTATE_MAX - XHEADER_END];
} __attribute__((aligned(64)));
_Static_assert(offsetof(struct xstate, sw) == 464 && offsetof(struct xstate, bv) == FXSAVE_SIZE,
               "struct xstate is XSAVE's");

/* Bytes of the area, for the features the program has; XSAVE's standard form, which CPUID
 * describes. */
uint32_t xstate_size(const struct vm *vm);
/* Bits of MXCSR that this CPU has. */
uint32_t xstate_mxcsr_mask(void);
void xstate_get(struct thread *t, struct xstate *x);
/* The registers of x87 in their initial state. */
void xstate_init_fp(struct xstate *x);
/* What a signal handler starts with. */
void xstate_reset(struct thread *t);

/* The new thread `to` begins with the extended state of `from`. */
void xstate_copy(struct thread *from, struct thread *to);
/* For the parent of a vfork: xstate_keep() saves t's extended state and allocates,
 * xstate_bring_back() restores it and frees. */
void *xstate_keep(struct thread *t);
void xstate_bring_back(struct thread *t, void *kept);

/* si_code of a floating-point exception: #MF or #XM, by vector. */
int xstate_fpe_code(struct thread *t, unsigned vector);

#endif
