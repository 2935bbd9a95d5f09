/*
 * Queue pairs that kern drives by itself (include/abi_direct.h), over soft-RoCE.
 *
 * A node has DIRECT_QUEUES of them, connected as its data connections are (recover.c), after those
 * are up.  Nobody calls ibv_post_send() or ibv_poll_cq() on them.  rxe keeps the rings of a queue
 * pair in pages that its library maps into this process: each becomes a memory slot of the VM.  No
 * function of the library tells where they are, so rings are looked for in /proc/self/maps, by what
 * is new since before they were made (rings.c).
 *
 * [I] In this order: a queue is DOWN and its lock is ours; its queue pair is destroyed, so that no
 * READ touches a frame; the rings leave the VM; the pages that were under way are begun anew.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <x86intrin.h>
#include <rdma/ib_user_verbs.h>
#include "base/message.h"
#include "far/direct.h"
#include "far/io.h"
#include "far/rdma/direct.h"
#include "far/rdma/link.h"
#include "far/rdma/pace.h"
#include "far/rdma/queue.h"
#include "vm/kvm.h"
#include <rdma/rdma_user_rxe.h>         /* after the C library's headers */

/* Set by the host's kernel alone, for rxe: the device that it sends by. */
static bool is_rxe(const struct rdma_device *d)
{
        char path[128];

        if (!d->verbs)
                return false;
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/parent",
                 ibv_get_device_name(d->verbs->device));
        return access(path, F_OK) == 0;
}

bool rdma_direct_wanted(const struct far_node *n)
{
        struct rdma_node *rn = n->data;

        /* A child knows from its parent. */
        if (rn->dev.verbs)
                rn->rxe = is_rxe(&rn->dev);

        return opt.direct && __builtin_cpu_supports("sse4.2") && rn->rxe;
}

static struct far_direct *given(const struct rdma_node *rn)
{
        /* Acquire: EXIT_DIRECT has filled it in. */
        return atomic_load_explicit(&rn->n->direct, memory_order_acquire);
}

static void close_links(struct rdma_direct *x)
{
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                atomic_store_explicit(&x->handle[i], 0, memory_order_relaxed);
                rdma_link_close(&x->link[i]);
        }
}

static uint64_t ring_gpa(const struct far_direct *d, unsigned queue, unsigned done)
{
        return d->gpa + direct_ring_at(0, queue, done) - direct_rings(0);
}

/* False: a vCPU has a lock for that long. */
static bool down(struct rdma_node *rn, unsigned limit_ms)
{
        struct rdma_direct *x = &rn->direct;
        struct far_direct *d = given(rn);
        const bool up = x->state == RDMA_DIRECT_UP;

        for (unsigned i = 0; up && i < DIRECT_QUEUES; i++)
                if (!direct_take(d->queue[i], limit_ms))
                        return false;
        close_links(x);
        for (unsigned i = 0; x->shown && i < 2 * DIRECT_QUEUES; i++)
                vm_replace_memory(d->vm, ring_gpa(d, i / 2, i % 2), NULL, 0);
        for (unsigned i = 0; up && i < DIRECT_QUEUES; i++)
                direct_release(d, d->queue[i]);
        x->shown = false;
        x->state = RDMA_DIRECT_NONE;
        return true;
}

void rdma_direct_down(struct rdma_node *rn) { down(rn, 0); }

#define CLOSE_MS 500

void rdma_direct_close(struct rdma_node *rn) { down(rn, CLOSE_MS); }

static void start(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        const struct rdma_data *d = &rn->data;

        x->state = RDMA_DIRECT_CONNECTING;
        x->generation = d->generation;
        x->deadline = now + DATA_ATTEMPT_MS;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct rdma_link *l = &x->link[i];
                *l = (struct rdma_link){ .node = rn, .channel = d->channel,
                                         .comp = &rn->dev.data_comp, .send = NIC_DEPTH, .recv = 1,
                                         .sge = 1, .rings = &x->rings[i],
                                         .ask = d->q[FAR_READ].link.ask };
                rdma_link_start(l);
        }
}

/* Is this the ring that was asked for, and no other mapping of the device? */
static bool fits(const struct rdma_ring *r, size_t element)
{
        const struct rxe_queue_buf *q = r->at;
        uint64_t n = (uint64_t)q->index_mask + 1;

        return r->at && r->size <= DIRECT_RING && q->log2_elem_size < 12 &&
               1u << q->log2_elem_size >= element && n > NIC_DEPTH && (n & (n - 1)) == 0 &&
               sizeof(*q) + (n << q->log2_elem_size) <= r->size;
}

static int show(const struct far_direct *d, unsigned queue, unsigned done,
                const struct rdma_ring *r)
{
        return vm_replace_memory(d->vm, ring_gpa(d, queue, done), r->at, r->size);
}

/* A pointer of kern's into a ring. */
#define in_ring(n, queue, done, field)                                                             \
        (void *)(direct_ring_at((n)->index, queue, done) + offsetof(struct rxe_queue_buf, field))

static bool fill_in(struct rdma_node *rn, unsigned i)
{
        const struct far_node *n = rn->n;
        struct rdma_direct *x = &rn->direct;
        struct far_direct *d = given(rn);
        const struct rdma_rings *r = &x->rings[i];
        struct direct_queue *q = d->queue[i];

        if (!fits(&r->send, sizeof(struct rxe_send_wqe) + sizeof(struct rxe_sge)) ||
            !fits(&r->done, sizeof(struct ib_uverbs_wc)) || show(d, i, 0, &r->send) != 0 ||
            show(d, i, 1, &r->done) != 0)
                return false;
        const struct rxe_queue_buf *send = r->send.at, *done = r->done.at;
        q->nic = (struct nic){
                .format = NIC_RXE, .key = rn->mem.mr->lkey,
                .send = in_ring(n, i, 0, data), .done = in_ring(n, i, 1, data),
                .send_record = in_ring(n, i, 0, producer_index),
                .done_record = in_ring(n, i, 1, consumer_index),
                .done_index = in_ring(n, i, 1, producer_index),
                .send_shift = send->log2_elem_size, .send_mask = send->index_mask,
                .done_shift = done->log2_elem_size, .done_mask = done->index_mask
        };
        q->exit_rings = 1;
        q->verify = opt.verify;
        q->epoch = x->generation;
        x->fd = rn->dev.verbs->cmd_fd;
        /* Release: who rings sees the descriptor. */
        atomic_store_explicit(&x->handle[i], x->link[i].id->qp->handle + 1, memory_order_release);
        return true;
}

/* Address and key as the connections of this generation have them; see struct rdma_grant. */
static bool where(const struct far_place *p, uint64_t *from, uint32_t *key)
{
        const struct rdma_node *rn = p->node->data;
        const struct rdma_grant *g = p->data;

        if (!g)                         /* the node was lost before this process came */
                return false;
        *from = atomic_load_explicit(&g->address, memory_order_relaxed);
        *key = atomic_load_explicit(&g->rkey, memory_order_relaxed);
        return atomic_load_explicit(&g->restarts, memory_order_relaxed) ==
               rn->direct.link[0].restarts;
}

/* For a while; the rings of the host work without. */
#define PAUSE_MS 10000
/* For good, after so many breaks in a row in which no READ came. */
#define BARREN_MOST 3

static void give_up(struct rdma_node *rn, const char *why, int64_t now)
{
        info_("%s: the fault handler does not read pages by itself: %s", rn->n->option->origin,
              why);
        rdma_direct_down(rn);
        rn->direct.state = RDMA_DIRECT_GIVEN_UP;
        rn->direct.deadline = now + PAUSE_MS;
}

static void made(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        struct far_direct *d = given(rn);

        for (unsigned i = 0; !x->shown && i < DIRECT_QUEUES; i++)
                if (!fill_in(rn, i)) {
                        x->shown = true;        /* some may be */
                        give_up(rn, "its rings are not where they are looked for", now);
                        return;
                }
        x->shown = true;
        if (!direct_slabs(rn->n, x->generation, where))
                return;                 /* in the next turn */
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                x->seen[i] = 0;
                x->moved[i] = rn->data.ran;
                direct_up(d->queue[i]);
        }
        x->posted = x->over = 0;
        x->came = direct_reads(rn->n);
        x->state = RDMA_DIRECT_UP;
}

static void connect_step(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        unsigned up = 0;

        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                if (x->link[i].state == LINK_FAILED) {
                        give_up(rn, x->link[i].why, now);
                        return;
                }
                up += x->link[i].state == LINK_UP;
        }
        if (up == DIRECT_QUEUES)
                made(rn, now);
        else if (now >= x->deadline)
                give_up(rn, "its memnode does not answer the connection requests in time",
                        now);
}

int64_t rdma_direct_stalled(struct rdma_node *rn)
{
        struct rdma_direct *x = &rn->direct;
        const struct far_direct *d = given(rn);
        int64_t stall = 0;

        if (x->state != RDMA_DIRECT_UP)
                return 0;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                const struct direct_queue *q = d->queue[i];
                /* Relaxed: hints of progress. */
                uint32_t seen = atomic_load_explicit(&q->seen, memory_order_relaxed);
                if (seen != x->seen[i] ||
                    seen == atomic_load_explicit(&q->posted, memory_order_relaxed)) {
                        x->seen[i] = seen;
                        x->moved[i] = rn->data.ran;
                }
                if (rn->data.ran - x->moved[i] > stall)
                        stall = rn->data.ran - x->moved[i];
        }
        return stall;
}

/* A queue has failed; d->why. */
static bool is_broken(struct rdma_node *rn)
{
        const struct far_direct *d = given(rn);
        struct rdma_direct *x = &rn->direct;

        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (atomic_load_explicit(&d->queue[i]->state, memory_order_relaxed) ==
                    DIRECT_BROKEN) {
                        x->barren = direct_reads(rn->n) == x->came ? x->barren + 1 : 0;
                        snprintf(rn->data.why, sizeof(rn->data.why), "a transfer failed");
                        return true;
                }
        return false;
}

bool rdma_direct_step(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        struct far_direct *d = given(rn);

        if (!d)
                return true;
        /* Its pages go elsewhere: places that kern does not know. */
        if (is_set(&rn->n->asked)) {
                if (x->state != RDMA_DIRECT_NONE)
                        rdma_direct_down(rn);
                return true;
        }
        switch (x->state) {
        case RDMA_DIRECT_NONE:
                if (rn->mem.mr && !rn->mem.pool && x->barren < BARREN_MOST && is_rxe(&rn->dev))
                        start(rn, now);
                return true;
        case RDMA_DIRECT_CONNECTING:
                connect_step(rn, now);
                return true;
        case RDMA_DIRECT_UP:
                direct_learn(d);
                direct_slabs(rn->n, x->generation, where);
                return !is_broken(rn);
        case RDMA_DIRECT_GIVEN_UP:
                if (now >= x->deadline)
                        x->state = RDMA_DIRECT_NONE;
                return true;
        }
        return true;
}

bool rdma_direct_connects(const struct rdma_node *rn)
{
        return rn->direct.state == RDMA_DIRECT_CONNECTING;
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

int rdma_direct_ring(struct far_node *n, unsigned queue)
{
        struct rdma_node *rn = n->data;
        int err = ring(rn, queue);

        if (err)        /* its caller wakes the I/O side */
                /* Relaxed: who reads it rings for all that was posted before it was set, or sees
                 * it set again. */
                atomic_fetch_or_explicit(&rn->direct.bells, 1u << queue, memory_order_relaxed);
        return err;
}

static void ring_for_others(struct rdma_node *rn)
{
        _Atomic uint32_t *bells = &rn->direct.bells;

        if (!atomic_load_explicit(bells, memory_order_relaxed))
                return;
        uint32_t set = atomic_exchange_explicit(bells, 0, memory_order_relaxed);
        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (set >> i & 1)
                        ring(rn, i);
}

/* Of demand reads that one turn does not see, the next one does. */
static void look_at_pace(struct rdma_node *rn)
{
        struct rdma_direct *x = &rn->direct;
        struct rdma_data *d = &rn->data;
        const struct far_direct *f = given(rn);
        uint32_t posted = 0, over = 0;

        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                posted += atomic_load_explicit(&f->queue[i]->posted, memory_order_relaxed);
                over += atomic_load_explicit(&f->queue[i]->seen, memory_order_relaxed);
        }
        if (posted != x->posted)
                rdma_pace_asked(&d->pace, rdma_background_done(d), __rdtsc());
        if (over != x->over)
                rdma_pace_done(&d->pace, rdma_background_sent(d), __rdtsc());
        x->posted = posted;
        x->over = over;
}

void rdma_direct_poll(struct rdma_node *rn)
{
        ring_for_others(rn);
        look_at_pace(rn);
}

const char *rdma_direct_how(const struct rdma_node *rn)
{
        if (!opt.direct)
                return "";
        if (rn->direct.state == RDMA_DIRECT_UP)
                return ", read by the fault handler too";
        if (!__builtin_cpu_supports("sse4.2"))
                return ", not read by the fault handler (the CPU has no SSE 4.2)";
        if (!is_rxe(&rn->dev))
                return ", not read by the fault handler (the device is not soft-RoCE)";
        if (rn->mem.pool)
                return ", not read by the fault handler (the frames cannot be registered)";
        return ", to be read by the fault handler too";
}
