/*
 * What the set-up of ConnectX queue pairs (mlx5.c) calls in libraries: a table, since libmlx5 is
 * there only where such a card is, and so that a test can take its place.
 */
#ifndef VMRUN_RDMA_MLX5_H
#define VMRUN_RDMA_MLX5_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the functions of these names; 0 or an errno, or NULL with errno. */
struct mlx5_calls {
        bool (*is_supported)(struct ibv_device *d);             /* mlx5dv_* */
        int (*init_obj)(struct mlx5dv_obj *o, uint64_t type);
        struct ibv_td *(*alloc_td)(struct ibv_context *c, struct ibv_td_init_attr *a); /* ibv_* */
        int (*dealloc_td)(struct ibv_td *td);
        struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *c,
                                              struct ibv_parent_domain_init_attr *a);
        int (*dealloc_pd)(struct ibv_pd *pd);
        struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
        int (*create_qp)(struct rdma_cm_id *id, struct ibv_pd *pd,
                         struct ibv_qp_init_attr *a);           /* rdma_create_qp() */
        /* The card's page at this offset of the device; NULL, with errno. */
        void *(*map_page)(int fd, uint64_t offset);
        void (*unmap_page)(void *page);
};

/* NULL: libmlx5 is not loaded, so no device of this process is such a card.  A test sets it. */
extern const struct mlx5_calls *rdma_mlx5_calls;

#endif
