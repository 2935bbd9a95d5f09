/*
 * FAR_WINDOW: files mapped slab by slab at addresses that are the same in host and guest.  For the
 * drivers whose nodes are plain memory.
 */
#ifndef VMRUN_FAR_WINDOW_H
#define VMRUN_FAR_WINDOW_H

#include "far/node.h"

/* Maps [first, first+pages) of fd, shared, at the next free place of the window, as one memory slot
 * of the VM; fills s->va and s->gpa.  granule: bytes that the mapping must be aligned to, a power
 * of two; 0: any page will do.  0; -ENOSPC: window or guest-physical space is used up; or the error
 * of mmap or KVM.  Never undone.  Called under the lease lock. */
int window_map(struct vm *vm, int fd, uint64_t first, uint32_t pages, uint64_t granule,
               struct slab *s);

/* In a forked child, where nothing is mapped in the window any more: marks all of it free. */
void window_forked(void);

#endif
