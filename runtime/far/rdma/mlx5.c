/*
 * Queue pairs of ConnectX cards that kern drives by itself (card.h): set-up.
 *
 * libmlx5 makes the queue pairs.  A parent domain has it take their rings and records from memory
 * of ours, which is a memory slot of the VM, and mlx5dv_init_obj() tells where they are
 * (ibv_alloc_parent_domain(3), mlx5dv_init_obj(3)).  The page with a queue pair's doorbell is
 * mapped once more, and is a slot, too.  KVM makes it uncached in the guest; so kern rings by a
 * store of 8 bytes.  Each queue has a thread domain, so the library shares its doorbell with no
 * other queue pair, whose lock kern could not see.
 *
 * Not run with a real card yet.
 */
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "far/direct.h"
#include "far/rdma/card.h"
#include "far/rdma/mlx5.h"
#include "vm/kvm.h"

/* A queue's part of the node's rings, as kern maps them: memory, then the doorbell's page. */
#define PART   (2ul * DIRECT_RING)
#define MEMORY (PART - PAGE_SIZE)

struct rdma_mlx5 {
        char *rings;                    /* DIRECT_RINGS bytes */
        struct queue {
                char *part;             /* of rings; used: bytes */
                size_t used;
                struct ibv_td *td;
                struct ibv_pd *pd;
                void *page;             /* with the doorbell */
        } queue[DIRECT_QUEUES];
};

/* ---- the libraries ---- */

static struct ibv_td *alloc_td(struct ibv_context *c, struct ibv_td_init_attr *a)
{
        return ibv_alloc_td(c, a);
}
static int dealloc_td(struct ibv_td *td) { return ibv_dealloc_td(td); }
static struct ibv_pd *alloc_parent_domain(struct ibv_context *c,
                                          struct ibv_parent_domain_init_attr *a)
{
        return ibv_alloc_parent_domain(c, a);
}
static struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
        return ibv_create_cq_ex(c, a);
}
/* As libmlx5 maps it. */
static void *map_page(int fd, uint64_t offset)
{
        void *at = mmap(NULL, PAGE_SIZE, PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

        return at == MAP_FAILED ? NULL : at;
}
static void unmap_page(void *page) { munmap(page, PAGE_SIZE); }

const struct mlx5_calls *rdma_mlx5_calls;
static struct mlx5_calls loaded = {
        .alloc_td = alloc_td,
        .dealloc_td = dealloc_td,
        .alloc_parent_domain = alloc_parent_domain,
        .dealloc_pd = ibv_dealloc_pd,
        .create_cq_ex = create_cq_ex,
        .create_qp = rdma_create_qp,
        .map_page = map_page,
        .unmap_page = unmap_page,
};

/* libibverbs has loaded it where it has opened such a card. */
static void load(void)
{
        void *lib = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_NOLOAD);

        if (!lib)
                return;
        *(void **)&loaded.is_supported = dlsym(lib, "mlx5dv_is_supported");
        *(void **)&loaded.init_obj = dlsym(lib, "mlx5dv_init_obj");
        if (loaded.is_supported && loaded.init_obj)
                rdma_mlx5_calls = &loaded;
}

static bool is_mlx5(const struct rdma_device *d)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, load);
        return rdma_mlx5_calls && rdma_mlx5_calls->is_supported(d->verbs->device);
}

/* ---- memory for rings ---- */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* For libmlx5: zeroed memory, which it does not clear itself.  Records of several queues that stand
 * in one line would slow each other down. */
static void *ring_alloc(struct ibv_pd *pd, void *queue, size_t size, size_t alignment,
                        uint64_t type)
{
        struct queue *q = queue;
        size_t at = round_up(q->used, alignment < CACHE_LINE ? CACHE_LINE : alignment);

        (void)pd, (void)type;
        if (size > MEMORY || at > MEMORY - size)
                return NULL;
        q->used = at + size;
        return q->part + at;
}

static void ring_free(struct ibv_pd *pd, void *queue, void *at, uint64_t type)
{
        (void)pd, (void)queue, (void)at, (void)type;    /* all at once: end() */
}

/* ---- the queue pairs ---- */

static struct queue *queue_of(const struct rdma_link *l)
{
        return &l->node->direct.mlx5->queue[rdma_card_queue(l)];
}

static void free_all(struct rdma_mlx5 *m)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct queue *q = &m->queue[i];
                if (q->page)
                        rdma_mlx5_calls->unmap_page(q->page);
                if (q->pd)
                        rdma_mlx5_calls->dealloc_pd(q->pd);
                if (q->td)
                        rdma_mlx5_calls->dealloc_td(q->td);
        }
        if (m->rings)
                munmap(m->rings, DIRECT_RINGS);
        free(m);
}

static bool make_domains(const struct rdma_device *d, struct queue *q, char why[FAR_WHY])
{
        struct ibv_td_init_attr none = { .comp_mask = 0 };

        if (!(q->td = rdma_mlx5_calls->alloc_td(d->verbs, &none))) {
                snprintf(why, FAR_WHY,
                         "the card gives it no page for doorbells (%s): %s, or set direct = off",
                         strerror(errno),
                         errno == EOPNOTSUPP ? "give this host the card itself, not a function of "
                                               "it without write combining"
                                             : "if many programs use the card, raise its "
                                               "PF_LOG_BAR_SIZE (mlxconfig)");
                return false;
        }
        struct ibv_parent_domain_init_attr attr = {
                .pd = d->pd,
                .td = q->td,
                .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                             IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
                .alloc = ring_alloc,
                .free = ring_free,
                .pd_context = q,
        };
        if (!(q->pd = rdma_mlx5_calls->alloc_parent_domain(d->verbs, &attr)))
                snprintf(why, FAR_WHY, "the card's library cannot be told where to put rings: %s",
                         strerror(errno));
        return q->pd;
}

static bool can(const struct rdma_device *d, char why[FAR_WHY])
{
        struct rdma_mlx5 *m = calloc(1, sizeof(*m));

        snprintf(why, FAR_WHY, "no memory: free some on this host");
        bool made = m && make_domains(d, &m->queue[0], why);

        if (m)
                free_all(m);
        return made;
}

static bool begin(struct rdma_node *rn, char why[FAR_WHY])
{
        struct rdma_mlx5 *m = calloc(1, sizeof(*m));
        bool made = m != NULL;

        snprintf(why, FAR_WHY, "no memory for its rings: free some on this host");
        if (m) {
                m->rings = mmap(NULL, DIRECT_RINGS, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (m->rings == MAP_FAILED)
                        m->rings = NULL;
                /* The card writes to these pages: a copy in a child must not take their place. */
                made = m->rings && madvise(m->rings, DIRECT_RINGS, MADV_DONTFORK) == 0;
        }
        for (unsigned i = 0; made && i < DIRECT_QUEUES; i++) {
                m->queue[i].part = m->rings + i * PART;
                made = make_domains(&rn->dev, &m->queue[i], why);
        }
        if (!made && m)
                free_all(m);
        rn->direct.mlx5 = made ? m : NULL;
        return made;
}

static struct ibv_cq *make_cq(struct rdma_link *l)
{
        struct ibv_cq_init_attr_ex attr = {
                .cqe = NIC_DEPTH - 1,   /* the library takes the next power of two above it */
                .cq_context = l,
                .wc_flags = IBV_WC_STANDARD_FLAGS,
                .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
                .parent_domain = queue_of(l)->pd,
        };
        struct ibv_cq_ex *cq = rdma_mlx5_calls->create_cq_ex(l->node->dev.verbs, &attr);

        return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* sq_sig_all stays 0: else the card may put what short READs bring in their completions. */
static int make_qp(struct rdma_link *l, struct ibv_qp_init_attr *attr)
{
        return rdma_mlx5_calls->create_qp(l->id, queue_of(l)->pd, attr);
}

/* ---- kern's view ---- */

static bool is_power_of_two(uint32_t n) { return n && (n & (n - 1)) == 0; }

/* Are n bytes in the memory of a queue? */
static bool is_in(const struct queue *q, const void *at, size_t n)
{
        size_t from = (size_t)((const char *)at - q->part);

        return from <= MEMORY && n <= MEMORY - from;
}

/* Are the rings such as kern writes them (kern/far/direct/mlx5.h), and where it can reach them? */
static bool fits(const struct queue *q, const struct mlx5dv_qp *qp, const struct mlx5dv_cq *cq)
{
        /* The library says 0 where the kernel lets it map that page only once. */
        return qp->comp_mask & MLX5DV_QP_MASK_UAR_MMAP_OFFSET && qp->uar_mmap_offset != 0 &&
               qp->sq.stride == NIC_BLOCK &&
               is_power_of_two(qp->sq.wqe_cnt) && qp->sq.wqe_cnt >= NIC_DEPTH &&
               cq->cqe_size == NIC_BLOCK && is_power_of_two(cq->cqe_cnt) &&
               cq->cqe_cnt >= NIC_DEPTH &&
               is_in(q, qp->sq.buf, (size_t)qp->sq.wqe_cnt * NIC_BLOCK) &&
               is_in(q, cq->buf, (size_t)cq->cqe_cnt * NIC_BLOCK) &&
               is_in(q, qp->dbrec, 2 * sizeof(*qp->dbrec)) &&
               is_in(q, cq->dbrec, 2 * sizeof(*cq->dbrec));
}

static int show_memory(const struct far_direct *d, unsigned i, const struct queue *q)
{
        uint64_t gpa = direct_ring_gpa(d, i, 0);
        int err = vm_replace_memory(d->vm, gpa, q->part, MEMORY);

        return err ? err : vm_replace_memory(d->vm, gpa + MEMORY, q->page, PAGE_SIZE);
}

/* Where kern sees what is in this process at `at`, in the queue's part that kern has at `part`. */
static void *seen(const struct queue *q, char *part, const void *at)
{
        return part + ((const char *)at - q->part);
}

static bool show(struct rdma_node *rn, const struct far_direct *d, unsigned i, struct nic *nic,
                 char why[FAR_WHY])
{
        struct queue *q = &rn->direct.mlx5->queue[i];
        const struct rdma_link *l = &rn->direct.link[i];
        struct mlx5dv_qp qp = { .comp_mask = MLX5DV_QP_MASK_UAR_MMAP_OFFSET };
        struct mlx5dv_cq cq = { .comp_mask = 0 };
        struct mlx5dv_obj obj = { .qp = { l->id->qp, &qp }, .cq = { l->cq, &cq } };
        int err = rdma_mlx5_calls->init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ);

        if (err) {
                snprintf(why, FAR_WHY, "the card's library does not tell where its rings are: %s",
                         strerror(err));
                return false;
        }
        if (!fits(q, &qp, &cq)) {
                snprintf(why, FAR_WHY,
                         "the card's rings are not as they were asked for (%u blocks of %u bytes, "
                         "%u completions of %u): unset MLX5_CQE_SIZE, if it is set",
                         qp.sq.wqe_cnt, qp.sq.stride, cq.cqe_cnt, cq.cqe_size);
                return false;
        }
        q->page = rdma_mlx5_calls->map_page(rn->dev.verbs->cmd_fd, qp.uar_mmap_offset);
        if (!q->page || (madvise(q->page, PAGE_SIZE, MADV_DONTFORK), err = show_memory(d, i, q))) {
                snprintf(why, FAR_WHY, "the page with the card's doorbell cannot be given to the "
                         "VM: %s", strerror(q->page ? -err : errno));
                return false;
        }
        char *part = (char *)direct_ring_at(rn->n->index, i, 0);
        *nic = (struct nic){
                .format = NIC_MLX5,
                .send = seen(q, part, qp.sq.buf), .done = seen(q, part, cq.buf),
                .send_record = seen(q, part, qp.dbrec + MLX5_SND_DBR),
                .done_record = seen(q, part, cq.dbrec),
                .bell = part + MEMORY + ((uintptr_t)qp.bf.reg & (PAGE_SIZE - 1)),
                .bell_half = qp.bf.size,
                .send_mask = qp.sq.wqe_cnt - 1, .done_mask = cq.cqe_cnt - 1
        };
        nic_name(nic, l->id->qp->qp_num, rn->mem.mr->lkey);
        return true;
}

static void end(struct rdma_node *rn, const struct far_direct *d)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                vm_replace_memory(d->vm, direct_ring_gpa(d, i, 0) + MEMORY, NULL, 0);
                vm_replace_memory(d->vm, direct_ring_gpa(d, i, 0), NULL, 0);
        }
        free_all(rn->direct.mlx5);
        rn->direct.mlx5 = NULL;
}

const struct rdma_card rdma_mlx5 = {
        .automatic = true,
        .is = is_mlx5,
        .can = can,
        .begin = begin,
        .make_cq = make_cq,
        .make_qp = make_qp,
        .show = show,
        .end = end,
};
