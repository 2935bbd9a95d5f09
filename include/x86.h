/*
 * Bits and numbers of the x86-64 architecture, as the Intel SDM names them.  Only those that more
 * than one file needs; page-table entries are in kern/pager/pte.h.
 */
#ifndef VMRUN_X86_H
#define VMRUN_X86_H

/* RFLAGS: SDM volume 1, 3.4.3 */
#define X86_CF 0x000001ull
#define X86_PF 0x000004ull
#define X86_AF 0x000010ull
#define X86_ZF 0x000040ull
#define X86_SF 0x000080ull
#define X86_TF 0x000100ull
#define X86_IF 0x000200ull
#define X86_DF 0x000400ull
#define X86_OF 0x000800ull
#define X86_NT 0x004000ull
#define X86_RF 0x010000ull
#define X86_AC 0x040000ull
#define X86_ID 0x200000ull

/* Flags that any program may change by arithmetic, by STD and by POPF */
#define X86_FLAGS_OF_USER                                                                         \
        (X86_CF | X86_PF | X86_AF | X86_ZF | X86_SF | X86_TF | X86_DF | X86_OF | X86_RF | X86_AC)

/* Control registers: SDM volume 3, 2.5 */
#define CR0_PE 0x00000001ull
#define CR0_MP 0x00000002ull
#define CR0_ET 0x00000010ull
#define CR0_NE 0x00000020ull
#define CR0_WP 0x00010000ull
#define CR0_PG 0x80000000ull

#define CR4_PAE        0x00000020ull
#define CR4_PGE        0x00000080ull
#define CR4_OSFXSR     0x00000200ull
#define CR4_OSXMMEXCPT 0x00000400ull
#define CR4_FSGSBASE   0x00010000ull
#define CR4_OSXSAVE    0x00040000ull

/* Model-specific registers: SDM volume 4 */
#define MSR_STAR   0xc0000081u
#define MSR_LSTAR  0xc0000082u
#define MSR_SFMASK 0xc0000084u

#define EFER_SCE 0x001ull
#define EFER_LME 0x100ull
#define EFER_LMA 0x400ull
#define EFER_NXE 0x800ull

/* Segment descriptors: SDM volume 3, 3.4.5.  The base is 0, the limit all ones. */
#define DESC_FLAT      0x000f00000000ffffull
#define DESC_ACCESSED  (1ull << 40)
#define DESC_WRITABLE  (1ull << 41)     /* of data; of code: readable */
#define DESC_CODE      (1ull << 43)
#define DESC_SEGMENT   (1ull << 44)     /* of code or data, not of the system */
#define DESC_DPL(n)    ((uint64_t)(n) << 45)
#define DESC_PRESENT   (1ull << 47)
#define DESC_LONG      (1ull << 53)
#define DESC_32        (1ull << 54)
#define DESC_PAGES     (1ull << 55)     /* the limit counts pages */
/* Types of system segments: SDM volume 3, 3.5 */
#define DESC_TSS_BUSY  (0xbull << 40)
#define DESC_INTERRUPT (0xeull << 40)

/* The 64-bit TSS: SDM volume 3, 7.7.  Offsets. */
#define TSS_RSP0  4
#define TSS_IST1  36
#define TSS_IST2  44
#define TSS_IOMAP 102
#define TSS_SIZE  104

/* Exceptions: SDM volume 3, 6.15 */
enum vector {
        VEC_DE = 0, VEC_DB = 1, VEC_BP = 3, VEC_OF = 4, VEC_BR = 5, VEC_UD = 6, VEC_NM = 7,
        VEC_NP = 11, VEC_SS = 12, VEC_GP = 13, VEC_PF = 14, VEC_MF = 16, VEC_AC = 17, VEC_XM = 19,
};

#endif
