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
        /* memsz > 0, the range is checked.  Segments may overlap: the later one gets the page.  The
         * file may end before they do. */
        uint64_t offset, vaddr, filesz, memsz;
        uint32_t flags;                         /* PF_R, PF_W, PF_X */
};

struct elf_info {
        uint16_t type;                  /* ET_EXEC or ET_DYN */
        /* Valid after an error too: the magic is right; this host's Linux runs no such file, but
         * another kind of host, or binfmt_misc, may. */
        bool is_elf, foreign;
        /* 0, or why its segments cannot be mapped: -ENOMEM, or an error that Linux finds when the
         * old program is gone already, so that it kills this program.  Then text says why, and the
         * fields about segments mean nothing. */
        int unloadable;
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
        /* the vaddr of the first PT_LOAD, an empty one included: what Linux places */
        uint64_t first;
        bool has_first;
        /* largest p_align of a segment, a power of two, at least a page */
        uint64_t align;
        char interp[PATH_MAX];          /* PT_INTERP, "" if there is none */
        bool has_interp;
        unsigned nsegments;
        struct elf_segment segment[ELF_PHDRS_MAX];
        char text[256];                 /* *why points to it */
};

/* Returns 0 with *out filled, or -errno.  *why is a sentence that names the cause (without the
 * file's name; it lives in out), also if out->unloadable.  -ENOEXEC, -EIO: as execve; -EACCES for
 * something that is not a regular file, or the error of a read.  out is too large for small
 * stacks. */
int elf_parse(int fd, struct elf_info *out, const char **why);

#endif
