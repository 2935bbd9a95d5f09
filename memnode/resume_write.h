/*
 * Writing the file of leases that outlive memnode.
 */
#ifndef MEMNODE_RESUME_WRITE_H
#define MEMNODE_RESUME_WRITE_H

#include "memnode/resume.h"

/* Writes the file, in place of none.  If it fails there is none. */
int resume_write(const char *path, const struct resume_list *list, void (*alive)(void), char *why,
                 size_t n);

#endif
