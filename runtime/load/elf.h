/*
 * Reading of ELF executables: from an open file to a checked plan of what to map where.
 *
 * A pure function over the file's bytes: it maps nothing, prints nothing, and accepts any bytes.
 * image.c applies the plan and chooses the address of a position-independent file.
 */
#ifndef VMRUN_ELF_H
#define VMRUN_ELF_H

#include <elf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "layout.h"

#define PAGE_DOWN(a) ((a) & ~(uint64_t)(PAGE_SIZE - 1))
#define PAGE_UP(a)   PAGE_DOWN((a) + PAGE_SIZE - 1)

/* Linux reads at most 64 KiB of program headers, 56 bytes each. */
#define ELF_PHDRS_MAX (65536 / 56)

struct elf_segment {
        uint64_t offset, vaddr, filesz, memsz;  /* memsz > 0; ranges checked, no two overlap */
        uint32_t flags;                         /* PF_R, PF_W, PF_X */
        /* its number among the program headers, as readelf counts them */
        uint32_t phdr;
};

struct elf_info {
        uint16_t type;                  /* ET_EXEC or ET_DYN */
        /* e_machine; set for foreign files too (then class says 32 or 64 bits) */
        uint16_t machine;
        uint8_t  class;                 /* ELFCLASS32 or ELFCLASS64, 0 if this is no ELF file */
        bool gnu_stack;                 /* has PT_GNU_STACK ... */
        bool exec_stack;                /* ... and it asks for an executable stack */
        /* phdr_vaddr is valid: some segment holds the program headers */
        bool phdr_mapped;
        /* the entry point is inside a segment (Linux does not ask) */
        bool entry_mapped;
        uint64_t entry;
        uint64_t phdr_vaddr;
        unsigned phnum;
        uint64_t low, high;             /* the span of all segments, rounded to pages */
        /* largest p_align of a segment, a power of two, at least a page */
        uint64_t align;
        char interp[PATH_MAX];          /* PT_INTERP, "" if there is none */
        bool has_interp;
        unsigned nsegments;
        struct elf_segment segment[ELF_PHDRS_MAX];
        char text[256];                 /* *why points to it */
};

/* Returns 0 with *out filled, or -errno with *why a sentence that names the cause (without the
 * file's name; it lives in out): -ENOEXEC for a file that no x86-64 Linux would run, -ENOMEM for
 * one that needs addresses which vmrun keeps for itself, -EACCES for something that is not a
 * regular file, or the error of a read.  out is too large for small stacks. */
int elf_parse(int fd, struct elf_info *out, const char **why);

#endif
