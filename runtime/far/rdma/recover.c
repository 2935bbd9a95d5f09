/*
 * Making the data connections, and making them again when one breaks.
 *
 * When one breaks, all three are closed, and the control connection is renewed first.  That order
 * is a fence: memnode ends the older queue pairs of this client that are left before it accepts the
 * new control connection, so no late packet of a WRITE can arrive after WRITEs that are posted on
 * the new queue pairs.  On our side a destroyed queue pair touches no frame any more.
 *
 * Then every request that was not over is posted again, in its old order.  It moves the bytes that
 * it moved before: a whole page, or a part of one.  Its source does not change and its target is
 * not used before far_done(): the guest reads no frame before its READ is done, and does not reuse
 * a slot before the WRITE to it, or a READ of a part of it, is done.  So doing a request twice does
 * no harm, and no older WRITE can overtake a later WRITE to its slot, since there is none yet.
 *
 * A node that hands back (far_driver) has no request then: all were given back when a connection
 * broke.
 *
 * Silence is counted in time in which this process ran, so that a process that was stopped does not
 * lose a node by that.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/message.h"
#include "far/rdma/control.h"
#include "far/rdma/device.h"
#include "far/rdma/direct.h"
#include "far/rdma/link.h"
#include "far/rdma/queue.h"
#include "far/rdma/recover.h"
#include "far/rdma/silence.h"
#include "far/rdma/words.h"

/* between two looks at the clock; more than this is our own pause, not the node's silence */
#define GAP_MS       1000
#define GAP_SOON_MS  50                 /* such a gap, of a node that hands back */

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

static bool has_leases(const struct rdma_node *rn)
{
        return atomic_load_explicit(&rn->grants, memory_order_relaxed) != NULL;
}

/* The QPs are destroyed by now, so they touch no frame any more. */
static void hand_back(struct rdma_node *rn)
{
        if (!rdma_is_down(rn->n))
                far_down(rn->n, rn->data.why);
        for (int k = 0; k < DATA_QUEUES; k++)
                rdma_queue_fail(rn, &rn->data.q[k]);
}

void rdma_data_broken(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;

        if (d->state == DATA_UP && !rn->n->hands_back)
                info_("%s: %s; reconnecting", rn->n->option->origin, d->why);
        rdma_direct_down(rn);
        for (int k = 0; k < DATA_QUEUES; k++)
                rdma_queue_down(&d->q[k]);
        d->state = DATA_DOWN;
        /* Relaxed: the thread that has the lock sees it at its next step. */
        atomic_store_explicit(&rn->control.broken, d->generation, memory_order_relaxed);
        if (rn->n->hands_back)
                hand_back(rn);
}

/* Requests under way will never complete on this node. */
static void give_up(struct rdma_node *rn)
{
        rn->data.lost = true;
        rn->data.state = DATA_DOWN;
        rdma_direct_down(rn);
        for (int k = 0; k < DATA_QUEUES; k++)
                rdma_queue_fail(rn, &rn->data.q[k]);
}

static void start(struct rdma_node *rn, unsigned generation, int64_t now)
{
        struct rdma_data *d = &rn->data;

        d->state = DATA_CONNECTING;
        d->generation = generation;
        d->deadline = now + DATA_ATTEMPT_MS;
        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_link *l = &d->q[k].link;
                l->ask = (struct node_private){ .magic = NODE_MAGIC,
                                                .version = NODE_VERSION,
                                                .length = sizeof(l->ask),
                                                .kind = NODE_DATA,
                                                .depth = (uint16_t)l->send,
                                                .generation = generation,
                                                .member = rn->n->member,
                                                .id = rn->control.id };
                rdma_link_start(l);
        }
}

int rdma_data_attach(struct rdma_node *rn, char why[FAR_WHY])
{
        struct rdma_data *d = &rn->data;
        char text[128];
        int err = rdma_memory_open(&rn->mem, &rn->dev, why);
        char *p = rn->mem.pool;

        if (err)
                return err;
        if (p)
                info_("%s: the frames cannot be registered, so pages are copied through %u KiB%s",
                      rn->n->option->origin, RDMA_POOL_PAGES * PAGE_SIZE / 1024,
                      rdma_words_memlock(text));
        for (int k = 0; p && k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                for (unsigned i = 0; i < RDMA_POOL_PAGES / DATA_QUEUES; i++, p += PAGE_SIZE)
                        q->spare[q->nspare++] = p;
                q->depth = least(q->depth, q->nspare);
        }
        return 0;
}

static void made(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;
        bool again = d->made;
        char why[FAR_WHY];

        if (rn->mem.base && !rn->mem.mr && rdma_data_attach(rn, why) != 0) {
                /* the node was down at attach() */
                far_lost(rn->n, true, "%s", why);
                give_up(rn);
                return;
        }
        d->state = DATA_UP;
        d->made = true;
        d->progress = false;
        d->asks = (struct rdma_silence){ .asking = false };
        d->pace = (struct rdma_pace){ .window = 0 };    /* the new path may differ */
        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                unsigned depth = q->link.send;
                if (q->link.depth)
                        depth = least(depth, q->link.depth);
                if (rn->mem.pool)
                        depth = least(depth, RDMA_POOL_PAGES / DATA_QUEUES);
                q->depth = depth;
                q->seen = 0;
                q->moved = d->ran;
        }
        if (again)
                __atomic_store_n(&d->reconnections, d->reconnections + 1, __ATOMIC_RELAXED);
        if (rn->n->hands_back) {        /* no request waits */
                if (rn->mem.mr)         /* else attach() has yet to come so far */
                        far_up(rn->n);
                return;
        }
        if (again)
                info_("%s: connected again after %llu ms", rn->n->option->origin,
                      (unsigned long long)d->silence);
        for (int k = 0; k < DATA_QUEUES; k++)
                if (rdma_queue_send(rn, &d->q[k]) != 0) {
                        rdma_data_broken(rn);
                        return;
                }
}

/* The first link that failed, if one did. */
static const struct rdma_link *failed(const struct rdma_data *d)
{
        for (int k = 0; k < DATA_QUEUES; k++)
                if (d->q[k].link.state == LINK_FAILED)
                        return &d->q[k].link;
        return NULL;
}

static bool all_up(const struct rdma_data *d)
{
        for (int k = 0; k < DATA_QUEUES; k++)
                if (d->q[k].link.state != LINK_UP)
                        return false;
        return true;
}

/* ms for which a connection with work has completed nothing. */
static int64_t stalled(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;
        int64_t stall = rdma_direct_stalled(rn);

        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                if (q->done != q->seen || q->done == q->sent) {
                        q->seen = q->done;
                        q->moved = d->ran;
                }
                if (d->ran - q->moved > stall)
                        stall = d->ran - q->moved;
        }
        return stall;
}

/* The connections count as broken, since transfers do not end; d->why. */
static bool is_silent(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;
        struct rdma_control *c = &rn->control;
        int64_t stall = stalled(rn);
        unsigned answers = atomic_load_explicit(&c->answers, memory_order_relaxed);
        enum rdma_verdict v = rdma_silence(&d->asks, rn->n->hands_back, stall, d->ran, answers);

        if (v == RDMA_ASK)
                atomic_store_explicit(&c->ask, true, memory_order_relaxed);
        if (v == RDMA_ASK || v == RDMA_WAIT)
                return false;
        snprintf(d->why, sizeof(d->why), "no transfer ended for %u.%u s%s", (unsigned)stall / 1000,
                 (unsigned)stall % 1000 / 100,
                 v == RDMA_SILENT ? ", and its card does not answer" : "");
        return true;
}

/* Advances the state. */
static void advance(struct rdma_node *rn, int64_t now)
{
        struct rdma_data *d = &rn->data;
        /* acquire: id and secret are in place */
        unsigned up = atomic_load_explicit(&rn->control.up, memory_order_acquire);
        const struct rdma_link *l = failed(d);

        if (d->state == DATA_DOWN) {
                if (up > d->generation)
                        start(rn, up, now);
                return;
        }
        if (d->state == DATA_CONNECTING && !l && now >= d->deadline) {
                for (int k = 0; k < DATA_QUEUES; k++)
                        if (d->q[k].link.state != LINK_UP)
                                rdma_link_silent(&d->q[k].link, DATA_ATTEMPT_MS);
                l = failed(d);
        }
        if (l) {
                snprintf(d->why, sizeof(d->why), "%s", l->why);
                rdma_data_broken(rn);
        } else if (up != d->generation && (up || rn->n->hands_back)) {
                /* A node that hands back does not wait for the next control connection. */
                snprintf(d->why, sizeof(d->why), "the control connection broke");
                rdma_data_broken(rn);
        } else if (d->state == DATA_UP && (!rdma_direct_step(rn, now) || is_silent(rn))) {
                rdma_data_broken(rn);
        } else if (d->state == DATA_CONNECTING && all_up(d)) {
                made(rn);
        }
}

/* All connections are up, and if requests were under way, one has completed. */
static bool whole(const struct rdma_node *rn)
{
        const struct rdma_data *d = &rn->data;
        bool busy = d->q[0].count || d->q[1].count || d->q[2].count;

        return d->state == DATA_UP &&
               atomic_load_explicit(&rn->control.up, memory_order_relaxed) == d->generation &&
               (d->progress || !busy);
}

static bool step_control(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;

        if (pthread_mutex_trylock(&c->lock) != 0)
                return false;           /* lease() has the lock, and advances it */
        rdma_control_step(rn, now);
        pthread_mutex_unlock(&c->lock);
        return true;
}

/* The control connection reports that the node will not come back. */
static void lost(struct rdma_node *rn)
{
        struct rdma_control *c = &rn->control;

        /* A lease() that has the lock may just have got a grant; no later lease() gets one. */
        if (pthread_mutex_trylock(&c->lock) != 0)
                return;                 /* the next step tries again */
        bool leased = has_leases(rn);
        pthread_mutex_unlock(&c->lock);
        if (rn->n->hands_back) {
                snprintf(rn->data.why, sizeof(rn->data.why), "%s", c->why);
                rdma_data_broken(rn);
        }
        far_lost(rn->n, leased, "%s", c->why);
        give_up(rn);
}

bool rdma_answer(struct far_node *n, bool moved)
{
        struct rdma_node *rn = n->data;

        if (pthread_mutex_trylock(&rn->control.lock) != 0)
                return false;
        bool done = rdma_control_answer(rn, moved);
        pthread_mutex_unlock(&rn->control.lock);
        if (done && moved)
                give_up(rn);            /* nothing is under way */
        return done;
}

void rdma_data_step(struct rdma_node *rn, int64_t now)
{
        struct rdma_data *d = &rn->data;
        struct rdma_control *c = &rn->control;
        const int64_t most = rn->n->hands_back ? GAP_SOON_MS : GAP_MS;
        int64_t gap = now - d->looked < most ? now - d->looked : most;

        if (d->lost)
                return;
        d->looked = now;
        d->ran += gap;
        bool mine = step_control(rn, now);
        if (atomic_load_explicit(&c->lost, memory_order_acquire)) {
                lost(rn);
                return;
        }
        rdma_link_events(d->channel);
        unsigned before = d->generation;
        advance(rn, now);
        if (mine && (d->state == DATA_DOWN || before != d->generation))
                /* at once: the program waits as long as there is no connection */
                step_control(rn, now);
        if (whole(rn)) {
                d->silence = 0;
                return;
        }
        d->silence += gap;
        if (d->silence > rn->set.timeout_ms && has_leases(rn) && !rn->n->hands_back) {
                far_lost(rn->n, true, "nothing came through for %u.%u s (%s)",
                         rn->set.timeout_ms / 1000, rn->set.timeout_ms % 1000 / 100, d->why);
                give_up(rn);
        }
}
