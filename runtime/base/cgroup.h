/*
 * The limits of memory of this process's control groups: its own and all above it, of version 2 and
 * of version 1.
 */
#ifndef VMRUN_CGROUP_H
#define VMRUN_CGROUP_H

#include <stdint.h>

struct cgroup_memory {
        uint64_t limit;                 /* bytes: the lowest of them; UINT64_MAX: none */
        /* bytes until the first of them is reached; what the kernel can drop counts as free */
        uint64_t left;
        char file[256];                 /* which says the lowest; "": none */
};

/* root: a folder in front of all paths, for tests; "". */
void cgroup_memory(const char *root, struct cgroup_memory *m);

#endif
