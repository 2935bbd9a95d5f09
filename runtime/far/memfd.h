/*
 * vmrun's own memory files.
 */
#ifndef VMRUN_FAR_MEMFD_H
#define VMRUN_FAR_MEMFD_H

#include <stddef.h>
#include <stdint.h>

/* Makes a sparse memory file of that many bytes, sealed against changes of its size.  Returns its
 * descriptor, which is private (privfd), or -errno with a sentence in why. */
int memfd_make(const char *name, uint64_t bytes, char *why, size_t n);
/* The same, but the descriptor is not private: close-on-exec, the lowest number. */
int memfd_open(const char *name, uint64_t bytes, char *why, size_t n);

#endif
