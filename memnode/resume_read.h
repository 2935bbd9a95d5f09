/*
 * Reading the file of leases that outlive memnode.
 */
#ifndef MEMNODE_RESUME_READ_H
#define MEMNODE_RESUME_READ_H

#include "memnode/resume.h"

/* Called with each lease of a file, whose pieces have no memory: gives them some that is all zero,
 * and takes the members over, if it returns 0.  The pieces' array stays the caller's. */
typedef int resume_take(struct resume_lease *l, char *why, size_t n);
/* Reads the file, if there is one; *count: the leases in it.  If it fails, pages may be wrong:
 * nothing that was taken may be served.  alive() is called every now and then. */
int resume_read(const char *path, resume_take *take, void (*alive)(void), unsigned *count,
                char *why, size_t n);

#endif
