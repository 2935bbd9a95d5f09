/*
 * A mapping under construction, for mmap and shmat; upcalls of the loader and of /proc/self/maps
 * (abi_exits.h).
 */
#ifndef VMRUN_MAP_H
#define VMRUN_MAP_H

#include "space/vma.h"

struct mm_request {
        uint64_t addr, len, off;        /* len: whole pages, once opened whole pages of v */
        uint32_t flags;                 /* the MAP_* flags about placement and population */
        int32_t fd;
        struct vma v;                   /* the VMA it becomes, except its bounds */
};

/* Call these in this order if the mapping has an object of the host.  May MAP_FIXED map there?  0
 * or -errno. */
int mm_check_fixed(const struct mm_request *r);
/* r->v owns the object that the last exit has opened. */
void mm_take_object(struct mm_request *r);
/* Maps r->v.  Returns the address.  On -errno the object has been given back. */
long mm_map_opened(struct mm_request *r);
/* Gives the object back; returns err. */
long mm_give_up(struct mm_request *r, long err);

/* UPCALL_MM, UPCALL_MAPS. */
long mm_batch(struct mm_op *ops, uint64_t n);
uint32_t mm_maps(uint64_t above, struct map_entry *out, uint32_t max);

#endif
