/*
 * The kern image: its header, and the version of the border between kern (in the guest) and vmrun
 * (on the host).
 *
 * The border is made of the headers abi_*.h.  Any change there that the other side can notice bumps
 * ABI_VERSION; the kern image is linked into vmrun, so a mismatch is a build error and is refused
 * at start.
 */
#ifndef VMRUN_ABI_IMAGE_H
#define VMRUN_ABI_IMAGE_H

#include <stdint.h>

#define ABI_VERSION 28
#define KERN_MAGIC  0x6e72656b6e757276ull       /* "vrunkern" */

/* First bytes of the kern image.  All addresses are virtual, in the window.  OUT of kern's link. */
struct kern_header {
        uint64_t magic;
        uint32_t abi_version;
        uint32_t vectors;               /* number of exception stubs: 32 */
        uint64_t image_end;             /* end of bss */
        uint64_t text_end;              /* [WINDOW, text_end) is executable, the rest is not */
        uint64_t constant_end;          /* [WINDOW, constant_end) is never written */
        uint64_t start;                 /* first RIP of a vCPU */
        /* Where the host points a kicked vCPU that ran program code. */
        uint64_t event;
        uint64_t syscall;               /* LSTAR */
        uint64_t stubs[2];              /* exception stubs at p = 0 and at p = 3 */
        uint64_t stub_size;             /* bytes between two stubs of a table */
        /* p = 3: RIP after the int3 that asks ring 0 for a TLB flush */
        uint64_t flush_gate;
        /* Where the stubs continue at the program's level (vcpu_fixed.frame3_*) */
        uint64_t pf_common, trap_common;
        /* Restartable returns to the program: a kicked RIP in [look, look_end) goes back to look */
        uint64_t look[2], look_end[2];
        uint64_t upcall;                /* upcall_serve(): for kern itself (kern/base/exit.c) */
};

#endif
