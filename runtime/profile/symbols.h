/*
 * The names of functions in an ELF file: of .symtab, or .dynsym if it is stripped.
 */
#ifndef VMRUN_SYMBOLS_H
#define VMRUN_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct symbols;

/* Reads an open file, which must stay open.  NULL: it is no ELF file, or there is no memory. */
struct symbols *symbols_read(int fd);
void symbols_free(struct symbols *s);

/* The address, in the file's own terms, of the byte at that offset.  False: it is not loaded. */
bool symbols_address(const struct symbols *s, uint64_t offset, uint64_t *address);
/* The function at an address in the file's own terms; *into: how far the address is in it.  NULL:
 * no function is known there.  The name lives as long as s. */
const char *symbols_find(const struct symbols *s, uint64_t address, uint64_t *into);

#endif
