/*
 * The data connections: one-sided READs and WRITEs between frames and leased slabs.
 *
 * One RC queue pair for each kind of request, so that a demand read waits neither for prefetches nor for write-backs; each with a
 * completion queue of its own, demand first.  A QP completes in order, so a completion ends all requests up to its number:
 * READs all tell, WRITEs every few and the last of a batch.  Neighbours in a slab go in one WRITE.
 *
 * All of this is the I/O thread's, without locks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>
#include "rdma.h"

#define LOOK_EVERY  64                  /* polls between looks at the clock */
#define LOOK_MS     10                  /* and the least time between steps while all is well */
#define WATCH_MS    1000                /* the longest sleep while something is under way */
#define MEND_MS     50                  /* and while something is broken */
#define LOCKED_MS   10                  /* and while lease() has the control connection */

static void count(uint64_t *counter, uint64_t n)
{
        __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);      /* one writer; readers only want a whole number */
}

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* Makes a chain of work requests from what is unsent, at most `room` requests; returns how many it made and sets *rest. */
static unsigned make_chain(struct rdma_node *rn, struct rdma_queue *q, unsigned room, struct far_request **rest)
{
        struct rdma_data *d = &rn->data;
        struct far_request *r = q->unsent;
        unsigned n = 0, pages = 0, sges = 0;

        while (r && pages < room) {
                bool write = r->op == FAR_WRITE;
                const struct rdma_grant *g = r->place->data;
                struct ibv_send_wr *wr = &d->wr[n++];
                int nsge;
                /* A page is at most one piece, so the pieces of `room` pages fit. */
                unsigned run = rdma_run(r, write ? least(room - pages, DATA_SGE) : 1, q->link.sge, &d->sge[sges], &nsge);

                for (int k = 0; k < nsge; k++)
                        d->sge[sges + (unsigned)k].lkey = rn->mem.mr->lkey;
                pages += run;
                *wr = (struct ibv_send_wr){
                        .wr_id = q->sent + pages,
                        .next = wr + 1,
                        .sg_list = &d->sge[sges],
                        .num_sge = nsge,
                        .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                        .send_flags = !write || n % DATA_SIGNAL == 0 ? IBV_SEND_SIGNALED : 0,
                        .wr.rdma = { .remote_addr = g->address + (uint64_t)r->page * PAGE_SIZE, .rkey = g->rkey },
                };
                sges += (unsigned)nsge;
                count(&d->merged, run - 1);
                while (run--)
                        r = r->next;
        }
        /* The last always tells: else nobody would hear of those before it, nor would the send queue get its entries back. */
        d->wr[n - 1].next = NULL;
        d->wr[n - 1].send_flags = IBV_SEND_SIGNALED;
        *rest = r;
        return pages;
}

static uint64_t background_done(const struct rdma_data *d) { return d->q[FAR_PREFETCH].done + d->q[FAR_WRITE].done; }

static unsigned posted(const struct rdma_queue *q) { return (unsigned)(q->sent - q->done); }

/* How many more may be posted now. */
static unsigned room(const struct rdma_data *d, const struct rdma_queue *q)
{
        unsigned n = q->depth - posted(q);

        if (q != &d->q[FAR_READ])
                n = least(n, rdma_pace_room(&d->pace, posted(q)));
        return least(n, DATA_CHAIN);
}

void rdma_data_send(struct rdma_node *rn, struct rdma_queue *q)
{
        struct rdma_data *d = &rn->data;
        unsigned n;

        while (q->unsent && (n = room(d, q)) > 0) {
                struct far_request *rest;
                struct ibv_send_wr *bad;
                unsigned pages = make_chain(rn, q, n, &rest);
                int err = ibv_post_send(q->link.id->qp, d->wr, &bad);
                if (err) {              /* part of it may be under way: all are posted again, on a new connection */
                        snprintf(d->why, sizeof(d->why), "a transfer cannot be posted: %s", strerror(err));
                        rdma_data_broken(rn);
                        return;
                }
                q->sent += pages;
                q->unsent = rest;
                if (q != &d->q[FAR_READ])
                        rdma_pace_sent(&d->pace);
        }
}

unsigned rdma_data_post(struct far_node *n, struct far_request **r, unsigned number)
{
        struct rdma_node *rn = n->data;
        struct rdma_data *d = &rn->data;
        unsigned i = 0;

        if (d->state != DATA_UP)
                return 0;
        if (number && r[0]->op == FAR_READ)
                rdma_pace_asked(&d->pace, d->q[FAR_PREFETCH].sent + d->q[FAR_WRITE].sent, background_done(d), __rdtsc());
        for (; i < number; i++) {
                struct rdma_queue *q = &d->q[r[i]->op];
                char *local = r[i]->frame;
                if (q->count >= q->depth)
                        break;
                if (rn->mem.pool) {
                        local = q->spare[--q->nspare];
                        if (r[i]->op == FAR_WRITE)
                                memcpy(local, r[i]->frame, PAGE_SIZE);
                        count(&d->copies, 1);
                }
                r[i]->cookie[0] = (uintptr_t)local;
                r[i]->next = NULL;
                *q->tail = r[i];
                q->tail = &r[i]->next;
                q->count++;
                if (!q->unsent)
                        q->unsent = r[i];
        }
        for (int k = 0; k < DATA_QUEUES && d->state == DATA_UP; k++)
                rdma_data_send(rn, &d->q[k]);
        return i;
}

/* The oldest request is over. */
static void finish(struct rdma_node *rn, struct rdma_queue *q)
{
        struct far_request *r = q->head;

        q->head = r->next;
        if (!q->head)
                q->tail = &q->head;
        q->count--;
        q->done++;
        if (rn->mem.pool) {
                char *local = (char *)r->cookie[0];
                if (r->op != FAR_WRITE)
                        memcpy(r->frame, local, PAGE_SIZE);
                q->spare[q->nspare++] = local;
        }
        if (r->op == FAR_READ)
                rdma_pace_done(&rn->data.pace, __rdtsc());
        far_done(r);                    /* r is its maker's again */
}

/* false: the connection is broken and taken down. */
static bool completion(struct rdma_node *rn, struct rdma_queue *q, const struct ibv_wc *wc)
{
        struct rdma_data *d = &rn->data;

        if (wc->status == IBV_WC_SUCCESS && wc->wr_id > q->done && wc->wr_id <= q->sent) {
                while (q->done < wc->wr_id)
                        finish(rn, q);
                d->progress = true;
                return true;
        }
        if (wc->status == IBV_WC_RETRY_EXC_ERR)
                snprintf(d->why, sizeof(d->why), "memnode's machine does not answer");
        else if (wc->status == IBV_WC_REM_ACCESS_ERR)
                snprintf(d->why, sizeof(d->why), "memnode does not let us at what it granted");
        else if (wc->status == IBV_WC_SUCCESS)
                snprintf(d->why, sizeof(d->why), "the RDMA device reports a transfer that was not posted");
        else
                snprintf(d->why, sizeof(d->why), "a transfer failed: %s", ibv_wc_status_str(wc->status));
        rdma_data_broken(rn);
        return false;
}

static unsigned poll_queue(struct rdma_node *rn, struct rdma_queue *q)
{
        unsigned before = q->count;
        int n;

        do {
                n = q->nwc ? q->nwc : ibv_poll_cq(q->link.cq, DATA_WC, q->wc);
                q->nwc = 0;
                for (int i = 0; i < n; i++)
                        if (!completion(rn, q, &q->wc[i]))
                                return before - q->count;
        } while (n == DATA_WC);
        return before - q->count;       /* far_done() posts nothing */
}

/* After a sleep: what the completion channel told. */
static void take_told(struct rdma_node *rn)
{
        struct ibv_cq *cq;
        void *context;

        while (ibv_get_cq_event(rn->dev.data_comp, &cq, &context) == 0) {
                struct rdma_link *l = context;
                ((struct rdma_queue *)((char *)l - offsetof(struct rdma_queue, link)))->armed = false;
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
        for (int k = 0; k < DATA_QUEUES && d->state == DATA_UP; k++) {
                struct rdma_queue *q = &d->q[k];
                /* What the last turn made room for: not in that turn, so that demand reads asked meanwhile were posted first. */
                if (q->unsent)
                        rdma_data_send(rn, q);
                if (d->state == DATA_UP)
                        over += poll_queue(rn, q);
        }
        if (slept || d->state != DATA_UP || ++d->looks % LOOK_EVERY == 0) {
                int64_t now = rdma_now();
                if (slept || now - d->looked >= (d->state == DATA_UP ? LOOK_MS : 1))
                        rdma_data_step(rn, now);
        }
        rdma_pace_turn(&d->pace, background_done(d), __rdtsc());
        return over;
}

/* Completions that are there already come into the queues' stashes: they would not be told on the channel. */
static bool arm_queues(struct rdma_data *d)
{
        bool work = false;

        for (int k = 0; k < DATA_QUEUES; k++) {
                struct rdma_queue *q = &d->q[k];
                if (!q->armed)
                        q->armed = ibv_req_notify_cq(q->link.cq, 0) == 0;
                if (!q->nwc) {
                        int n = ibv_poll_cq(q->link.cq, DATA_WC, q->wc);
                        q->nwc = n > 0 ? n : 0;
                }
                work |= q->nwc > 0;
        }
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

        if (d->told_lost)
                return 0;
        if (d->state == DATA_UP && arm_queues(d))
                return -EAGAIN;
        d->slept = true;
        rdma_pace_slept(&d->pace);
        if (d->state != DATA_UP || atomic_load_explicit(&c->up, memory_order_relaxed) != d->generation)
                lower(timeout_ms, MEND_MS);
        else if (busy)
                lower(timeout_ms, WATCH_MS);

        int fd[4] = { rn->dev.data_comp->fd, d->channel->fd, rn->dev.control_comp->fd, c->channel->fd };
        unsigned want = 4;
        /* lease() reads its descriptors itself; we would wake for each of its messages and find the lock taken. */
        if (pthread_mutex_trylock(&c->lock) == 0) {
                int patience = rdma_control_patience(rn, rdma_now());
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
