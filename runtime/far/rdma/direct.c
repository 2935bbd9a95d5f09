/*
 * Queue pairs that kern drives by itself (include/abi_direct.h): made, looked after, taken down.
 * What cards differ in is in rxe.c and mlx5.c (card.h).
 *
 * A node has DIRECT_QUEUES of them, connected as its data connections are (recover.c), after those
 * are up.
 *
 * [I] In this order: a queue is DOWN and its lock is ours; its queue pair is destroyed, so that no
 * READ touches a frame; the rings leave the VM; the pages that were under way are begun anew.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <x86intrin.h>
#include "base/message.h"
#include "far/direct.h"
#include "far/io.h"
#include "far/rdma/card.h"
#include "far/rdma/direct.h"
#include "far/rdma/link.h"
#include "far/rdma/pace.h"
#include "far/rdma/queue.h"

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

/* The queues go down: did they bring anything?  With their locks. */
static void judge(struct rdma_node *rn)
{
        const struct far_direct *d = given(rn);
        struct rdma_direct *x = &rn->direct;
        uint32_t posted = 0;

        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                posted += atomic_load_explicit(&d->queue[i]->posted, memory_order_relaxed);
        if (direct_reads(rn->n) != x->came)
                x->barren = 0;
        else if (posted)
                x->barren++;
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
        if (up)
                judge(rn);
        close_links(x);
        if (x->begun)
                rn->card->end(rn, d);
        for (unsigned i = 0; up && i < DIRECT_QUEUES; i++)
                direct_release(d, d->queue[i]);
        x->begun = x->shown = false;
        x->state = RDMA_DIRECT_NONE;
        return true;
}

void rdma_direct_down(struct rdma_node *rn) { down(rn, 0); }

#define CLOSE_MS 500

void rdma_direct_close(struct rdma_node *rn) { down(rn, CLOSE_MS); }

/* For a while, twice as long each time; the rings of the host work without. */
#define PAUSE_MS 10000
#define DOUBLED_MOST 6
/* For good, after so many breaks in a row in which no READ came. */
#define BARREN_MOST 3

static void give_up(struct rdma_node *rn, const char *why, int64_t now)
{
        info_("%s: the fault handler does not read pages by itself: %s", rn->n->option->origin,
              why);
        rdma_direct_down(rn);
        rn->direct.again = false;
        rn->direct.state = RDMA_DIRECT_GIVEN_UP;
        rn->direct.deadline = now + ((int64_t)PAUSE_MS << rn->direct.failed);
        rn->direct.failed += rn->direct.failed < DOUBLED_MOST;
}

static void start(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        const struct rdma_data *d = &rn->data;
        char why[FAR_WHY];

        if (!rn->card->begin(rn, why)) {
                give_up(rn, why, now);
                return;
        }
        x->begun = true;
        x->state = RDMA_DIRECT_CONNECTING;
        x->generation = d->generation;
        x->deadline = now + DATA_ATTEMPT_MS;
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                struct rdma_link *l = &x->link[i];
                *l = (struct rdma_link){ .node = rn, .channel = d->channel,
                                         .comp = &rn->dev.data_comp, .send = NIC_DEPTH, .recv = 1,
                                         .sge = 1, .card = rn->card,
                                         .ask = d->q[FAR_READ].link.ask };
                rdma_link_start(l);
        }
}

static bool fill_in(struct rdma_node *rn, unsigned i, char why[FAR_WHY])
{
        struct rdma_direct *x = &rn->direct;
        struct far_direct *d = given(rn);
        struct direct_queue *q = d->queue[i];

        if (!rn->card->show(rn, d, i, &q->nic, why))
                return false;
        q->exit_rings = rn->card->exit_rings;
        q->verify = opt.verify;
        q->epoch = x->generation;
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

static void made(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        struct far_direct *d = given(rn);
        char why[FAR_WHY];

        for (unsigned i = 0; !x->shown && i < DIRECT_QUEUES; i++)
                if (!fill_in(rn, i, why)) {
                        give_up(rn, why, now);
                        return;
                }
        x->shown = true;
        if (!direct_slabs(rn->n, x->generation, where))
                return;                 /* in the next turn */
        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                x->seen[i] = 0;
                x->moved[i] = x->polled[i] = rn->data.ran;
                direct_up(d->queue[i]);
        }
        x->posted = x->over = 0;
        x->came = direct_reads(rn->n);
        x->failed = 0;
        x->again = false;
        x->state = RDMA_DIRECT_UP;
}

static void connect_step(struct rdma_node *rn, int64_t now)
{
        struct rdma_direct *x = &rn->direct;
        unsigned up = 0;

        for (unsigned i = 0; i < DIRECT_QUEUES; i++) {
                if (x->link[i].failure == FAIL_COOKIE && !x->again) {
                        x->again = true;
                        rdma_direct_down(rn);
                        return;
                }
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

/* If no vCPU has polled and slept for so long, completions may lie there. */
#define UNPOLLED_MS 200

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
                uint32_t seen = atomic_load_explicit(&q->seen, memory_order_relaxed),
                         slept = atomic_load_explicit(&q->slept, memory_order_relaxed);
                if (slept != x->slept[i]) {
                        x->slept[i] = slept;
                        x->polled[i] = rn->data.ran;
                }
                if (seen != x->seen[i] || rn->data.ran - x->polled[i] > UNPOLLED_MS ||
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

        for (unsigned i = 0; i < DIRECT_QUEUES; i++)
                if (atomic_load_explicit(&d->queue[i]->state, memory_order_relaxed) ==
                    DIRECT_BROKEN) {
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
                if (rn->mem.mr && !rn->mem.pool && x->barren < BARREN_MOST &&
                    rdma_card_wanted(rn->card))
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

int rdma_direct_ring(struct far_node *n, unsigned queue)
{
        struct rdma_node *rn = n->data;
        int err = rdma_rxe.ring(rn, queue);     /* no other needs an exit */

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
                        rdma_rxe.ring(rn, i);
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

void rdma_direct_how(const struct rdma_node *rn, char text[RDMA_HOW])
{
        const struct rdma_card *c = rn->card;
        const char *not = "";
        char why[FAR_WHY];

        *text = '\0';
        if (opt.direct == DIRECT_OFF || (opt.direct == DIRECT_AUTO && !(c && c->automatic)))
                return;
        if (!__builtin_cpu_supports("sse4.2"))
                not = "the CPU has no SSE 4.2";
        else if (!c)
                not = "the device is neither mlx5 nor soft-RoCE";
        else if (rn->mem.pool)
                not = "the frames cannot be registered";
        else if (rn->direct.barren >= BARREN_MOST)
                not = "no page came that way";
        else if (rn->direct.state != RDMA_DIRECT_UP && !c->can(&rn->dev, why))
                not = why;
        if (*not)
                snprintf(text, RDMA_HOW, ", not read by the fault handler (%s)", not);
        else
                snprintf(text, RDMA_HOW, ", %s by the fault handler too%s",
                         rn->direct.state == RDMA_DIRECT_UP ? "read" : "to be read",
                         c->exit_rings ? ", with an exit each" : "");
}
