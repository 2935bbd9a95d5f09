/*
 * The data connections coming up, breaking, and coming up again.
 *
 * When one breaks, all three go, and the control connection is renewed first.  That order is a fence: memnode ends what is left of this
 * client's older queue pairs before it accepts the new control connection, so no late packet of a WRITE can come after what is
 * posted on the new ones.  On our side a destroyed queue pair touches no frame any more.
 *
 * Then every request that was not over is posted again, in its old order.  Each is a whole page, and nobody changes its source or
 * uses its target before far_done(): the guest reads no frame before its READ is done, and does not use a slot again before the WRITE
 * to it is done.  So doing it twice does the same as once, and no later WRITE to the same slot can exist that an older one could overtake.
 *
 * Silence is counted in time that this process was running, so that one that was stopped does not wake up to a lost node.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rdma.h"
#include "base/message.h"

#define ATTEMPT_MS   1500               /* for the three data connections together */
#define STALL_MS     3000               /* a QP with work that completes nothing so long is broken, even if its device says nothing */
#define GAP_MS       1000               /* between two looks at the clock; what is more was not silence but we */

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

void rdma_data_broken(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;

        if (d->state == DATA_UP)
                info_("%s: %s; reconnecting", rn->n->option->origin, d->why);
        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                rdma_link_close(&q->link);
                q->unsent = q->head;
                q->sent = q->done = 0;
                q->nwc = 0;
                q->armed = false;
        }
        d->state = DATA_DOWN;
        /* Who has the lock sees it at its next step. */
        atomic_store_explicit(&rn->control.broken, d->generation, memory_order_relaxed);
}

static void start(struct rdma_node *rn, unsigned generation, int64_t now)
{
        struct rdma_data *d = &rn->data;

        d->state = DATA_CONNECTING;
        d->generation = generation;
        d->deadline = now + ATTEMPT_MS;
        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_link *l = &d->q[k].link;
                l->ask = (struct node_private){ .magic = NODE_MAGIC, .version = NODE_VERSION, .length = sizeof(l->ask), .kind = NODE_DATA,
                                                .depth = (uint16_t)l->send, .member = rn->member, .id = rn->control.id };
                memcpy(l->ask.secret, rn->control.secret, sizeof(l->ask.secret));
                rdma_link_start(l);
        }
}

static void made(struct rdma_node *rn, int64_t now)
{
        struct rdma_data *d = &rn->data;
        bool again = d->generation > 1;

        d->state = DATA_UP;
        d->progress = false;
        d->pace = (struct rdma_pace){ .window = 0 };    /* the way there may be another */
        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                unsigned depth = q->link.send;
                if (q->link.depth)
                        depth = least(depth, q->link.depth);
                if (rn->mem.pool)
                        depth = least(depth, RDMA_POOL_PAGES / DATA_QUEUES);
                q->depth = depth;
                q->seen = 0;
                q->moved = now;
        }
        if (again) {
                __atomic_store_n(&d->reconnections, d->reconnections + 1, __ATOMIC_RELAXED);
                info_("%s: connected again after %llu ms", rn->n->option->origin, (unsigned long long)d->silence);
        }
        for (int k = 0; k < DATA_QUEUES && d->state == DATA_UP; k++)
                rdma_data_send(rn, &d->q[k]);
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

static bool stalled(struct rdma_data *d, int64_t now)
{
        bool stall = false;

        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                if (q->done != q->seen || q->done == q->sent) {
                        q->seen = q->done;
                        q->moved = now;
                }
                stall |= now - q->moved > STALL_MS;
        }
        return stall;
}

/* Moves the state on. */
static void advance(struct rdma_node *rn, int64_t now)
{
        struct rdma_data *d = &rn->data;
        unsigned up = atomic_load_explicit(&rn->control.up, memory_order_acquire);      /* id and secret are in place */
        const struct rdma_link *l = failed(d);

        if (d->state == DATA_DOWN) {
                if (up > d->generation)
                        start(rn, up, now);
                return;
        }
        if (d->state == DATA_CONNECTING && !l && now >= d->deadline) {
                for (int k = 0; k < DATA_QUEUES; k++)
                        if (d->q[k].link.state != LINK_UP)
                                rdma_words_silent(&d->q[k].link, ATTEMPT_MS);
                l = failed(d);
        }
        if (l) {
                snprintf(d->why, sizeof(d->why), "%s", l->why);
                rdma_data_broken(rn);
        } else if (up && up != d->generation) {
                snprintf(d->why, sizeof(d->why), "the control connection broke");
                rdma_data_broken(rn);
        } else if (d->state == DATA_UP && stalled(d, now)) {
                snprintf(d->why, sizeof(d->why), "no transfer ended for %d s", STALL_MS / 1000);
                rdma_data_broken(rn);
        } else if (d->state == DATA_CONNECTING && all_up(d)) {
                made(rn, now);
        }
}

/* Everything is up, and something came over it if there was anything to come. */
static bool whole(const struct rdma_node *rn)
{
        const struct rdma_data *d = &rn->data;
        bool busy = d->q[0].count || d->q[1].count || d->q[2].count;

        return d->state == DATA_UP && atomic_load_explicit(&rn->control.up, memory_order_relaxed) == d->generation && (d->progress || !busy);
}

static bool step_control(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;

        if (pthread_mutex_trylock(&c->lock) != 0)
                return false;           /* lease() has it, and moves it on */
        rdma_control_step(rn, now);
        pthread_mutex_unlock(&c->lock);
        return true;
}

/* The control connection says that the node will not come back. */
static void lost(struct rdma_node *rn)
{
        struct rdma_control *c = &rn->control;

        /* A lease() that has the lock may just have got something; none that comes later gets anything. */
        if (pthread_mutex_trylock(&c->lock) != 0)
                return;                 /* the next step asks again */
        bool leased = atomic_load_explicit(&rn->grants, memory_order_relaxed) != NULL;
        pthread_mutex_unlock(&c->lock);
        if (leased)
                far_lost(rn->n, "%s", c->why);
        rn->data.told_lost = true;      /* nothing of the program is there: one place less to lease from */
        warnx_("%s: %s: nothing was there yet, so the program goes on without it", rn->n->option->origin, c->why);
}

void rdma_data_step(struct rdma_node *rn, int64_t now)
{
        struct rdma_data *d = &rn->data;
        struct rdma_control *c = &rn->control;
        int64_t gap = now - d->looked;

        if (d->told_lost)
                return;
        d->looked = now;
        bool mine = step_control(rn, now);
        if (atomic_load_explicit(&c->lost, memory_order_acquire)) {
                lost(rn);
                return;
        }
        bool leased = atomic_load_explicit(&rn->grants, memory_order_relaxed) != NULL;
        rdma_link_events(d->channel);
        unsigned before = d->generation;
        advance(rn, now);
        if (mine && (d->state == DATA_DOWN || before != d->generation))
                step_control(rn, now);  /* at once: time without a connection is time the program waits */
        if (whole(rn)) {
                d->silence = 0;
                return;
        }
        d->silence += gap < GAP_MS ? gap : GAP_MS;
        if (d->silence > rn->set.timeout_ms && leased)
                far_lost(rn->n, "nothing came through for %u.%u s (%s)", rn->set.timeout_ms / 1000, rn->set.timeout_ms % 1000 / 100, d->why);
}

void rdma_data_attach(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;
        char *p = rn->mem.pool;

        for (int k = 0; p && k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                for (unsigned i = 0; i < RDMA_POOL_PAGES / DATA_QUEUES; i++, p += PAGE_SIZE)
                        q->spare[q->nspare++] = p;
                q->depth = least(q->depth, q->nspare);
        }
}

static void set_up_queue(struct rdma_node *rn, struct rdma_queue *q)
{
        const struct ibv_device_attr *a = &rn->dev.attr;
        unsigned depth = least(DATA_DEPTH, a->max_qp_wr > 1 ? (unsigned)a->max_qp_wr : 1);

        if (rn->depth)
                depth = least(depth, rn->depth);
        q->tail = &q->head;
        q->link = (struct rdma_link){ .node = rn, .channel = rn->data.channel, .comp = &rn->dev.data_comp, .send = depth, .recv = 1,
                                      .sge = least(DATA_SGE, a->max_sge > 1 ? (unsigned)a->max_sge : 1) };
}

int rdma_data_open(struct rdma_node *rn, int64_t deadline, char why[FAR_WHY])
{
        struct rdma_data *d = &rn->data;

        d->channel = rdma_channel_open(why);
        if (!d->channel)
                return -errno;
        for (int k = 0; k < DATA_QUEUES; k++) {
                set_up_queue(rn, &d->q[k]);
                d->q[k].spare = malloc(RDMA_POOL_PAGES / DATA_QUEUES * sizeof(char *));
                if (!d->q[k].spare) {
                        snprintf(why, FAR_WHY, "out of memory: free some on this host");
                        return -ENOMEM;
                }
        }
        d->looked = rdma_now();
        while (d->state != DATA_UP) {
                struct pollfd fd = { .fd = d->channel->fd, .events = POLLIN };
                int64_t now = rdma_now();
                rdma_data_step(rn, now);
                if (d->state == DATA_UP)
                        break;
                if (d->told_lost || now >= deadline) {
                        snprintf(why, FAR_WHY, "%s", d->told_lost ? rn->control.why : d->why[0] ? d->why : "the connections for data cannot be made in time");
                        return -ETIMEDOUT;
                }
                poll(&fd, 1, 10);
        }
        d->silence = 0;
        return 0;
}

void rdma_data_close(struct rdma_node *rn)
{
        struct rdma_data *d = &rn->data;

        for (int k = 0; k < DATA_QUEUES; k++) {
                rdma_link_close(&d->q[k].link);
                free(d->q[k].spare);
                d->q[k].spare = NULL;
        }
        rdma_channel_close(d->channel);
        d->channel = NULL;
}
