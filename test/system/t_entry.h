/* Parts of t_entry, and their declarations. */
#ifndef T_ENTRY_H
#define T_ENTRY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The outcome of an instruction: the first signal that it caused, or that it ran. */
struct outcome {
        int32_t signo, code;            /* signo 0: it ran */
        uint64_t more;                  /* signals behind the first */
        uint64_t addr, rip;
        uint64_t trap, err, flags;      /* flags: of the signal's frame, or after it ran */
        uint64_t rax;                   /* after it ran */
};

/*
 * t_entry_run.c: code runs with rsi = rdi = data, all other registers and the flags' DF, NT, TF and
 * AC 0, and ends by ret.
 */
enum { DATA_SIZE = 4096 };
extern unsigned char data[DATA_SIZE];
void run_prepare(void);
void run_code(const void *code, struct outcome *o);

/* t_entry_table.c: the instructions. */
struct instruction {
        const char *name;
        const void *code;
        uint64_t flags;
};
enum {
        I_VALUE = 1,    /* rax is the same on all machines */
        I_ALONE = 2,    /* where it is not refused, the CPU is of no use to later instructions */
        I_LOW = 4,      /* runs below 4 GiB */
};
unsigned instructions_count(void);
struct instruction instruction(unsigned n);

/* t_entry_instructions.c: only, or without, names an instruction; the other is NULL, or both. */
int instructions_main(int seconds, const char *only, const char *without);

/* t_entry_flags.c */
int kicks_main(long rounds);
int flags_main(long rounds, bool level3);

#endif
