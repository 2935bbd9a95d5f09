/*
 * Makes small ELF files for tests, good ones and ones that are wrong in exactly one way: start from
 * a good one, bend a field.
 */
#ifndef VMRUN_MKELF_H
#define VMRUN_MKELF_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#define MKELF_PHDRS 1200
#define MKELF_INTERP_OFF 0x800  /* where mkelf_interp puts the path: clear of the program headers */

struct mkelf {
        Elf64_Ehdr eh;
        Elf64_Phdr ph[MKELF_PHDRS];
        unsigned nph;   /* headers that are written; eh.e_phnum may lie */
        size_t size;    /* of the file; what the headers leave free holds a pattern, never zeros */
        char interp[4200];
        size_t interp_len;
};

/* A good file of three pages: text (R X) at base, data and bss (RW) at base + 0x2000. type: ET_EXEC
 * (base 0x400000) or ET_DYN (0). */
void mkelf_init(struct mkelf *m, uint16_t type);
Elf64_Phdr *mkelf_add(struct mkelf *m, uint32_t type, uint32_t flags, uint64_t off, uint64_t vaddr,
                      uint64_t filesz, uint64_t memsz);
/* Adds PT_INTERP with these bytes; len counts the NUL, if there is one. */
Elf64_Phdr *mkelf_interp(struct mkelf *m, const char *path, size_t len);

/* The file as a memfd at offset 0, or at a path, executable. At failure the test program ends. */
int mkelf_fd(const struct mkelf *m);
void mkelf_file(const struct mkelf *m, const char *path);
/* Same for any bytes. */
int bytes_fd(const void *bytes, size_t n);
void bytes_file(const void *bytes, size_t n, const char *path);

#endif
