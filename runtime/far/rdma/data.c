/*
 * The data connections: one-sided READs and WRITEs between frames and leased slabs.
 *
 * One RC queue pair for each kind of request, so that a demand read waits neither for prefetches
 * nor for write-backs; each with a completion queue of its own, demand first.
 *
 * Only the I/O thread runs this code, so there are no locks.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>
#include "far/rdma/control.h"
#include "far/rdma/data.h"
#include "far/rdma/device.h"
#include "far/rdma/direct.h"
#include "far/rdma/link.h"
#include "far/rdma/pace.h"
#include "far/rdma/queue.h"
#include "far/rdma/recover.h"

#define LOOK_EVERY  64                  /* polls between looks at the clock */
#define LOOK_MS     10                  /* and the shortest time between steps while all works */
#define WATCH_MS    1000                /* the longest sleep while transfers are under way */
#define SOON_MS     40                  /* such a sleep, if the node hands back */
#define MEND_MS     50                  /* the longest sleep while a connection is broken */
#define LOCKED_MS   10                  /* and while lease() has the control connection */

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

unsigned rdma_data_post(struct far_node *n, struct far_request **r, unsigned number)
{
        struct rdma_node *rn = n->data;
        struct rdma_data *d = &rn->data;
        unsigned i = 0;

        for (; d->lost && i < number; i++)
                far_failed(r[i]);
        if (d->state != DATA_UP || rdma_is_down(n))
                return i;
        if (number && r[0]->op == FAR_READ)
                rdma_pace_asked(&d->pace, rdma_background_done(d), __rdtsc());
        for (; i < number; i++) {
                struct rdma_queue *q = &d->q[r[i]->op];
                if (q->count >= q->depth)
                        break;
                rdma_queue_add(rn, q, r[i]);
        }
        for (int k = 0; k < DATA_QUEUES; k++)
                if (rdma_queue_send(rn, &d->q[k]) != 0) {
                        rdma_data_broken(rn);
                        break;
                }
        return i;
}

/* After a sleep: reads the events of the completion channel. */
static void take_told(struct rdma_node *rn)
{
        struct ibv_cq *cq;
        void *context;

        while (rn->dev.data_comp && ibv_get_cq_event(rn->dev.data_comp, &cq, &context) == 0) {
                struct rdma_link *l = context;
                ((struct rdma_queue *)((char *)l - offsetof(struct rdma_queue, link)))->armed =
                        false;
                ibv_ack_cq_events(cq, 1);
        }
}

unsigned rdma_data_poll(struct far_node *n)
{
        struct rdma_node *rn = n->data;
        struct rdma_data *d = &rn->data;
        bool slept = d->slept;
        unsigned over = 0;

        if (slept) {
                take_told(rn);
                d->slept = false;
        }
        if (rn->direct.state == RDMA_DIRECT_UP)
                rdma_direct_poll(rn);
        for (int k = 0; k < DATA_QUEUES && d->state == DATA_UP; k++) {
                struct rdma_queue *q = &d->q[k];
                /* Posts the requests for which the last turn made room.  Not in that turn itself,
                 * so that demand reads asked for meanwhile were posted first. */
                if ((q->unsent && rdma_queue_send(rn, q) != 0) ||
                    rdma_queue_poll(rn, q, &over) != 0)
                        rdma_data_broken(rn);
        }
        if (slept || d->state != DATA_UP || ++d->looks % LOOK_EVERY == 0) {
                int64_t now = now_ms();
                if (slept || now - d->looked >= (d->state == DATA_UP ? LOOK_MS : 1))
                        rdma_data_step(rn, now);
        }
        rdma_pace_turn(&d->pace, rdma_background_done(d), __rdtsc());
        return over;
}

/* Completions that are already there stay with their queues: the channel would make no event for
 * them. */
static bool arm_queues(struct rdma_data *d)
{
        bool work = false;

        for (int k = 0; k < DATA_QUEUES; k++)
                work |= rdma_queue_arm(&d->q[k]);
        return work;
}

static void lower(int *timeout_ms, int most)
{
        if (*timeout_ms < 0 || *timeout_ms > most)
                *timeout_ms = most;
}

int rdma_data_arm(struct far_node *n, struct pollfd *fds, unsigned max, int *timeout_ms)
{
        struct rdma_node *rn = n->data;
        struct rdma_data *d = &rn->data;
        struct rdma_control *c = &rn->control;
        bool busy = d->q[0].count || d->q[1].count || d->q[2].count;

        if (d->lost)
                return 0;
        if (d->state == DATA_UP && arm_queues(d))
                return -EAGAIN;
        d->slept = true;
        rdma_pace_slept(&d->pace);
        if (d->state != DATA_UP ||
            atomic_load_explicit(&c->up, memory_order_relaxed) != d->generation ||
            rdma_direct_connects(rn))
                lower(timeout_ms, MEND_MS);
        else if (busy)
                lower(timeout_ms, n->hands_back ? SOON_MS : WATCH_MS);

        /* of a device that is not open: -1, which poll(2) leaves out */
        const struct ibv_comp_channel *data = rn->dev.data_comp, *control = rn->dev.control_comp;
        int fd[4] = { data ? data->fd : -1, d->channel->fd, control ? control->fd : -1,
                      c->channel->fd };
        unsigned want = 4;
        /* A running lease() reads its descriptors itself: this thread would wake for each message
         * and find the lock taken. */
        if (pthread_mutex_trylock(&c->lock) == 0) {
                int patience = rdma_control_patience(rn, now_ms());
                if (patience >= 0)
                        lower(timeout_ms, patience);
                pthread_mutex_unlock(&c->lock);
        } else {
                want = 2;
                lower(timeout_ms, LOCKED_MS);
        }
        if (want > max)
                lower(timeout_ms, LOCKED_MS);
        want = least(want, max);
        for (unsigned i = 0; i < want; i++)
                fds[i] = (struct pollfd){ .fd = fd[i], .events = POLLIN };
        return (int)want;
}

static void set_up_queue(struct rdma_node *rn, struct rdma_queue *q)
{
        const struct ibv_device_attr *a = &rn->dev.attr;
        unsigned depth = least(DATA_DEPTH, a->max_qp_wr > 1 ? (unsigned)a->max_qp_wr : 1);

        if (rn->depth)
                depth = least(depth, rn->depth);
        q->tail = &q->head;
        q->link = (struct rdma_link){ .node = rn,
                                      .channel = rn->data.channel,
                                      .comp = &rn->dev.data_comp,
                                      .send = depth,
                                      .recv = 1,
                                      .sge = least(DATA_SGE,
                                                   a->max_sge > 1 ? (unsigned)a->max_sge : 1) };
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
        d->looked = now_ms();
        while (d->state != DATA_UP) {
                struct pollfd fd = { .fd = d->channel->fd, .events = POLLIN };
                int64_t now = now_ms();
                rdma_data_step(rn, now);
                if (d->state == DATA_UP)
                        break;
                if (d->lost || now >= deadline) {
                        snprintf(why, FAR_WHY, "%s",
                                 d->lost     ? rn->n->why
                                 : d->why[0] ? d->why
                                             : "its memnode does not answer the connection "
                                               "requests for data in time");
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

        rdma_direct_close(rn);
        for (int k = 0; k < DATA_QUEUES; k++) {
                rdma_link_close(&d->q[k].link);
                free(d->q[k].spare);
                d->q[k].spare = NULL;
        }
        rdma_channel_close(d->channel);
        d->channel = NULL;
}
