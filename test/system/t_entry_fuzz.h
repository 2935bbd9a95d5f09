/*
 * Parts of t_entry_fuzz, and their declarations. Everything lies at fixed addresses, so that two
 * runs can be compared word by word.
 */
#ifndef T_ENTRY_FUZZ_H
#define T_ENTRY_FUZZ_H

#include <stdint.h>

#define PAGE     4096ul
#define CODE     0x10000000ul           /* the block's code */
#define CODE_LEN (16 * PAGE)
#define WORDS    0x10100000ul           /* struct words */
#define TOUCHED  0x20000000ul           /* the block's memory: filled, */
#define FRESH    0x20100000ul           /* not touched yet, */
#define READONLY 0x20200000ul
#define NONE     0x20300000ul           /* PROT_NONE, */
#define UNMAPPED 0x20400000ul
#define SHARED   0x20500000ul
#define FAR      0x20600000ul           /* filled once, loads only: more than a small cache holds */
#define STACK    0x20a00000ul
#define PAGES    4                      /* of each, but for FAR: */
#define FAR_PAGES 512

enum { SLOTS = 24 };                    /* places where a block continues after a signal */

/* Words that code and C share. Code finds them by 32-bit addresses. */
struct words {
        uint64_t slot;                  /* the part of the code that runs */
        uint64_t regs[16];              /* at the block's end, by number; rsp is not the block's */
        uint64_t flags;
        uint64_t rsp;                   /* of the block, at its end */
        uint64_t c_rsp;                 /* where C continues */
        uint64_t pid, tid, zero_fd, null_fd;
        uint64_t xmm[8][2] __attribute__((aligned(16)));
        uint64_t slot_at[SLOTS + 1];    /* the parts of the code; the last is the end */
        unsigned slots;
};
#define W ((struct words *)WORDS)

/* xorshift64*; a block's randomness comes from its seed alone. */
struct random { uint64_t state; };
static inline uint64_t random_next(struct random *r)
{
        r->state ^= r->state >> 12;
        r->state ^= r->state << 25;
        r->state ^= r->state >> 27;
        return r->state * 0x2545f4914f6cdd1dul;
}
static inline uint64_t below(struct random *r, uint64_t n) { return (random_next(r) >> 16) % n; }

/* t_entry_fuzz_code.c: writes a block's code to CODE, and where its parts begin to W->slot_at. */
void code_make(struct random *r);
/* Leaves out the differences of a pagetable-based KVM from a CPU: it loses NT whenever the host
 * interrupts it, and emulates SYSCALL, into ring 0, with a stack pointer that is not canonical. */
extern int code_for_level3;

#endif
