/* Where rxe's library has mapped the rings of queues: rings.c. */
#ifndef VMRUN_RDMA_RINGS_H
#define VMRUN_RDMA_RINGS_H

#include "far/rdma/rdma.h"

#define RINGS_MOST 256

/* The mappings of uverbs devices. */
struct rdma_maps {
        bool known;                     /* they are all of them */
        unsigned n;
        struct rdma_ring ring[RINGS_MOST];
};
void rdma_maps(struct rdma_maps *m);
/* The only mapping that is new since `before`, is an empty ring, and has elements of at least that
 * many bytes; at NULL: there is none, or more than one. */
struct rdma_ring rdma_new_ring(const struct rdma_maps *before, size_t element);

#endif
