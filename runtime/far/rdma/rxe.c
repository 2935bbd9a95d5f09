/*
 * Queue pairs of soft-RoCE that kern drives by itself (card.h).
 *
 * rxe keeps the rings of a queue pair in pages that its library maps into this process: each
 * becomes a memory slot of the VM.  No function of the library tells where they are, so rings are
 * looked for in /proc/self/maps, by what is new since before they were made (rings.c).  Nobody
 * calls ibv_post_send() or ibv_poll_cq() on them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <rdma/ib_user_verbs.h>
#include "far/direct.h"
#include "far/rdma/card.h"
#include "far/rdma/rings.h"
#include "vm/kvm.h"
#include <rdma/rdma_user_rxe.h>         /* after the C library's headers */

/* Set by the host's kernel alone, for rxe: the device that it sends by. */
static bool is_rxe(const struct rdma_device *d)
{
        char path[128];

        snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/parent",
                 ibv_get_device_name(d->verbs->device));
        return access(path, F_OK) == 0;
}

static bool can(const struct rdma_device *d, char why[FAR_WHY])
{
        (void)d, (void)why;
        return true;
}

static bool begin(struct rdma_node *rn, char why[FAR_WHY])
{
        (void)rn, (void)why;
        return true;
}

static struct rdma_rings *rings_of(struct rdma_link *l)
{
        return &l->node->direct.rings[rdma_card_queue(l)];
}

static struct ibv_cq *make_cq(struct rdma_link *l)
{
        struct rdma_maps before;

        rdma_maps(&before);
        struct ibv_cq *cq = ibv_create_cq(l->node->dev.verbs, (int)(l->send + l->recv), l,
                                          *l->comp, 0);
        if (cq)
                rings_of(l)->done = rdma_new_ring(&before, sizeof(struct ib_uverbs_wc));
        return cq;
}

static int make_qp(struct rdma_link *l, struct ibv_qp_init_attr *attr)
{
        struct rdma_maps before;

        rdma_maps(&before);
        int err = rdma_create_qp(l->id, l->node->dev.pd, attr);
        if (!err)
                rings_of(l)->send = rdma_new_ring(&before, sizeof(struct rxe_send_wqe));
        return err;
}

/* Is this the ring that was asked for, and no other mapping of the device? */
static bool fits(const struct rdma_ring *r, size_t element)
{
        const struct rxe_queue_buf *q = r->at;

        if (!q || r->size > DIRECT_RING)
                return false;
        uint64_t n = (uint64_t)q->index_mask + 1;

        return q->log2_elem_size < 12 && 1u << q->log2_elem_size >= element && n > NIC_DEPTH &&
               (n & (n - 1)) == 0 && sizeof(*q) + (n << q->log2_elem_size) <= r->size;
}

static int show_ring(const struct far_direct *d, unsigned queue, unsigned done,
                     const struct rdma_ring *r)
{
        return vm_replace_memory(d->vm, direct_ring_gpa(d, queue, done), r->at, r->size);
}

/* A pointer of kern's into a ring. */
#define in_ring(n, queue, done, field)                                                             \
        (void *)(direct_ring_at((n)->index, queue, done) + offsetof(struct rxe_queue_buf, field))

static bool show(struct rdma_node *rn, const struct far_direct *d, unsigned i, struct nic *nic,
                 char why[FAR_WHY])
{
        const struct far_node *n = rn->n;
        struct rdma_direct *x = &rn->direct;
        const struct rdma_rings *r = &x->rings[i];

        if (!fits(&r->send, sizeof(struct rxe_send_wqe) + sizeof(struct rxe_sge)) ||
            !fits(&r->done, sizeof(struct ib_uverbs_wc)) || show_ring(d, i, 0, &r->send) != 0 ||
            show_ring(d, i, 1, &r->done) != 0) {
                snprintf(why, FAR_WHY, "its rings are not where they are looked for");
                return false;
        }
        const struct rxe_queue_buf *send = r->send.at, *done = r->done.at;
        *nic = (struct nic){
                .format = NIC_RXE, .key = rn->mem.mr->lkey,
                .send = in_ring(n, i, 0, data), .done = in_ring(n, i, 1, data),
                .send_record = in_ring(n, i, 0, producer_index),
                .done_record = in_ring(n, i, 1, consumer_index),
                .done_index = in_ring(n, i, 1, producer_index),
                .send_shift = send->log2_elem_size, .send_mask = send->index_mask,
                .done_shift = done->log2_elem_size, .done_mask = done->index_mask
        };
        x->fd = rn->dev.verbs->cmd_fd;
        /* Release: who rings sees the descriptor. */
        atomic_store_explicit(&x->handle[i], x->link[i].id->qp->handle + 1, memory_order_release);
        return true;
}

static void end(struct rdma_node *rn, const struct far_direct *d)
{
        (void)rn;
        for (unsigned i = 0; i < 2 * DIRECT_QUEUES; i++)
                vm_replace_memory(d->vm, direct_ring_gpa(d, i / 2, i % 2), NULL, 0);
}

/* What the library does to ring: a POST_SEND without any work request (librxe, post_send_db()).
 * The handle may be that of a queue pair that is gone: then there is nothing to ring for.  If the
 * kernel fails otherwise, kern rings again after some sleeps (direct_wait()). */
static int ring(const struct rdma_node *rn, unsigned i)
{
        uint32_t handle = atomic_load_explicit(&rn->direct.handle[i], memory_order_acquire);
        struct ib_uverbs_post_send_resp answer;
        struct {
                struct ib_uverbs_cmd_hdr hdr;
                struct ib_uverbs_post_send post;
        } ask = {
                .hdr = { .command = IB_USER_VERBS_CMD_POST_SEND, .in_words = sizeof(ask) / 4,
                         .out_words = sizeof(answer) / 4 },
                .post = { .response = (uintptr_t)&answer, .qp_handle = handle - 1,
                          .wqe_size = sizeof(struct ibv_send_wr) }
        };

        if (!handle || write(rn->direct.fd, &ask, sizeof(ask)) == sizeof(ask))
                return 0;
        return errno == EACCES ? -EACCES : 0;
}

const struct rdma_card rdma_rxe = {
        .exit_rings = true,
        .is = is_rxe,
        .can = can,
        .begin = begin,
        .make_cq = make_cq,
        .make_qp = make_qp,
        .show = show,
        .end = end,
        .ring = ring,
};
