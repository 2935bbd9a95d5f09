/*
 * For t_elf: an odd ELF file, how it is made, and its program's results.
 */
#ifndef T_ELF_H
#define T_ELF_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#define PG         4096ul
#define FILE_PAGES 8
#define PHDRS      16
#define LIST       200                  /* pages that a program shows */
#define OF_PROGRAM (1ul << 63)          /* in a loader's list: an address of its program */

/* The words behind the program's code, in its page of the file (t_elf.c). */
struct probe {
        uint64_t own_entry, program_entry, count, touch, list[LIST];
};

struct odd {
        Elf64_Ehdr eh;
        Elf64_Phdr ph[PHDRS];
        unsigned nph;
        size_t size;                    /* of the file */
        char interp[32];                /* at INTERP_AT, if PT_INTERP is to find it */
        struct probe probe;
        char what[256];                 /* its oddities, in words */
};

#define CODE_PAGE 1ul                   /* page of the file that holds the code and its probe */
#define INTERP_AT 0xf00ul

/* Numbers that depend on the seed alone. */
void draw_start(uint64_t seed);
uint64_t draw(uint64_t below);

/* A file that is odd in one to four ways.  base: where it is linked to.  interp: path of its
 * loader, or NULL. */
void odd_make(struct odd *o, unsigned type, uint64_t base, const char *interp);

#endif
