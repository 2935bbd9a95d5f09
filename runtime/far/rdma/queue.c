/*
 * One queue pair of the data connections: from requests to work requests, and back.
 *
 * A QP completes in order, so a completion ends all requests up to its number.  Every READ is
 * signaled; of WRITEs one in a few, and the last of a batch.  Neighbours in a slab share one WRITE,
 * or if they are read ahead one READ.
 *
 * Only the I/O thread runs this code, so there are no locks.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <x86intrin.h>
#include "far/rdma/link.h"
#include "far/rdma/pace.h"
#include "far/rdma/queue.h"
#include "far/rdma/run.h"

static void count(uint64_t *counter, uint64_t n)
{
        /* one writer; readers only need an untorn number */
        __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

static unsigned most_in_one(enum far_op op)
{
        return op == FAR_WRITE ? DATA_SGE : op == FAR_PREFETCH ? DATA_AHEAD : 1;
}

/* The most pieces of memory of one work request: devices may take fewer for a READ. */
static unsigned most_pieces(const struct rdma_node *rn, const struct rdma_queue *q, bool write)
{
        int of_read = rn->dev.attr.max_sge_rd;

        return write ? q->link.sge : least(q->link.sge, of_read > 1 ? (unsigned)of_read : 1);
}

/* Relaxed: see struct rdma_grant. */
#define of_grant(field) atomic_load_explicit(field, memory_order_relaxed)

/* Makes a chain of work requests from unsent requests, at most `room`; returns how many requests
 * are in it, and sets *rest.  0: the first is for a slab that is elsewhere since memnode was
 * restarted. */
static unsigned make_chain(struct rdma_node *rn, struct rdma_queue *q, unsigned room,
                           struct far_request **rest)
{
        struct rdma_data *d = &rn->data;
        struct far_request *r = q->unsent;
        unsigned n = 0, pages = 0, sges = 0;

        while (r && pages < room) {
                bool write = r->op == FAR_WRITE;
                struct rdma_grant *g = r->place->data;
                if (of_grant(&g->restarts) != q->link.restarts)
                        break;
                struct ibv_send_wr *wr = &d->wr[n++];
                /* A page is at most one piece, so the pieces of `room` pages fit. */
                struct rdma_run run = rdma_run(r, least(room - pages, most_in_one(r->op)),
                                               most_pieces(rn, q, write), &d->sge[sges]);

                for (unsigned k = 0; k < run.pieces; k++)
                        d->sge[sges + k].lkey = rn->mem.mr->lkey;
                if (r->len < PAGE_SIZE) {       /* it is alone */
                        d->sge[sges].addr += r->offset;
                        d->sge[sges].length = r->len;
                }
                pages += run.pages;
                *wr = (struct ibv_send_wr){
                        .wr_id = q->sent + pages,
                        .next = wr + 1,
                        .sg_list = &d->sge[sges],
                        .num_sge = (int)run.pieces,
                        .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                        .send_flags = !write || n % DATA_SIGNAL == 0 ? IBV_SEND_SIGNALED : 0,
                        .wr.rdma = { .remote_addr = of_grant(&g->address) + r->offset +
                                                    (uint64_t)run.lowest * PAGE_SIZE,
                                     .rkey = of_grant(&g->rkey) },
                };
                sges += run.pieces;
                count(&d->merged, run.pages - 1);
                while (run.pages--)
                        r = r->next;
        }
        /* The last work request is always signaled: otherwise the end of those before it would
         * never be seen, and the send queue would not get its entries back. */
        *rest = r;
        if (!n)
                return 0;
        d->wr[n - 1].next = NULL;
        d->wr[n - 1].send_flags = IBV_SEND_SIGNALED;
        return pages;
}

uint64_t rdma_background_sent(const struct rdma_data *d)
{
        return d->q[FAR_PREFETCH].sent + d->q[FAR_WRITE].sent;
}

uint64_t rdma_background_done(const struct rdma_data *d)
{
        return d->q[FAR_PREFETCH].done + d->q[FAR_WRITE].done;
}

static unsigned posted(const struct rdma_queue *q) { return (unsigned)(q->sent - q->done); }

/* How many more requests may be posted now. */
static unsigned room(const struct rdma_data *d, const struct rdma_queue *q)
{
        unsigned n = q->depth - posted(q);

        if (q != &d->q[FAR_READ])
                n = least(n, rdma_pace_room(&d->pace, posted(q)));
        return least(n, DATA_CHAIN);
}

int rdma_queue_send(struct rdma_node *rn, struct rdma_queue *q)
{
        struct rdma_data *d = &rn->data;
        unsigned n;

        while (q->unsent && (n = room(d, q)) > 0) {
                struct far_request *rest;
                struct ibv_send_wr *bad;
                unsigned pages = make_chain(rn, q, n, &rest);
                if (!pages) {
                        snprintf(d->why, sizeof(d->why),
                                 "a slab is elsewhere since memnode was restarted");
                        return -ESTALE;
                }
                int err = ibv_post_send(q->link.id->qp, d->wr, &bad);
                /* part of the chain may be under way: all are posted again, on a new connection */
                if (err) {
                        snprintf(d->why, sizeof(d->why), "a transfer cannot be posted: %s",
                                 strerror(err));
                        return -err;
                }
                q->sent += pages;
                q->unsent = rest;
                if (q != &d->q[FAR_READ])
                        rdma_pace_sent(&d->pace);
        }
        return 0;
}

void rdma_queue_add(struct rdma_node *rn, struct rdma_queue *q, struct far_request *r)
{
        char *local = r->frame;

        if (rn->mem.pool) {
                local = q->spare[--q->nspare];
                if (r->op == FAR_WRITE)
                        memcpy(local, r->frame, PAGE_SIZE);
                count(&rn->data.copies, 1);
        }
        r->cookie[0] = (uintptr_t)local;
        r->next = NULL;
        *q->tail = r;
        q->tail = &r->next;
        q->count++;
        if (!q->unsent)
                q->unsent = r;
}

/* Takes the oldest request out; over: its data has arrived. */
static struct far_request *take_oldest(struct rdma_node *rn, struct rdma_queue *q, bool over)
{
        struct far_request *r = q->head;

        q->head = r->next;
        if (!q->head)
                q->tail = &q->head;
        q->count--;
        if (rn->mem.pool) {
                char *local = (char *)r->cookie[0];
                if (over && r->op != FAR_WRITE)
                        memcpy(r->frame + r->offset, local + r->offset, r->len);
                q->spare[q->nspare++] = local;
        }
        return r;
}

static void finish(struct rdma_node *rn, struct rdma_queue *q)
{
        struct far_request *r = take_oldest(rn, q, true);

        q->done++;
        if (r->op == FAR_READ)
                rdma_pace_done(&rn->data.pace, rdma_background_sent(&rn->data), __rdtsc());
        far_done(r);                    /* r is the owner's again */
}

static int completion(struct rdma_node *rn, struct rdma_queue *q, const struct ibv_wc *wc)
{
        struct rdma_data *d = &rn->data;

        if (wc->status == IBV_WC_SUCCESS && wc->wr_id > q->done && wc->wr_id <= q->sent) {
                while (q->done < wc->wr_id)
                        finish(rn, q);
                d->progress = true;
                return 0;
        }
        if (wc->status == IBV_WC_RETRY_EXC_ERR)
                snprintf(d->why, sizeof(d->why), "memnode's machine does not answer");
        else if (wc->status == IBV_WC_REM_ACCESS_ERR)
                snprintf(d->why, sizeof(d->why), "memnode does not let us at what it granted");
        else if (wc->status == IBV_WC_SUCCESS)
                snprintf(d->why, sizeof(d->why),
                         "the RDMA device reports a transfer that was not posted");
        else
                snprintf(d->why, sizeof(d->why), "a transfer failed: %s",
                         ibv_wc_status_str(wc->status));
        return -EIO;
}

int rdma_queue_poll(struct rdma_node *rn, struct rdma_queue *q, unsigned *over)
{
        unsigned before = q->count;     /* far_done() posts nothing */
        int n, err = 0;

        do {
                n = q->nwc ? q->nwc : ibv_poll_cq(q->link.cq, DATA_WC, q->wc);
                q->nwc = 0;
                for (int i = 0; i < n && !err; i++)
                        err = completion(rn, q, &q->wc[i]);
        } while (n == DATA_WC && !err);
        *over += before - q->count;
        return err;
}

bool rdma_queue_arm(struct rdma_queue *q)
{
        if (!q->armed)
                q->armed = ibv_req_notify_cq(q->link.cq, 0) == 0;
        if (!q->nwc) {                  /* an earlier completion makes no event */
                int n = ibv_poll_cq(q->link.cq, DATA_WC, q->wc);
                q->nwc = n > 0 ? n : 0;
        }
        return q->nwc > 0;
}

void rdma_queue_down(struct rdma_queue *q)
{
        rdma_link_close(&q->link);
        q->unsent = q->head;
        q->sent = q->done = 0;
        q->nwc = 0;
        q->armed = false;
}

void rdma_queue_fail(struct rdma_node *rn, struct rdma_queue *q)
{
        rdma_queue_down(q);
        q->unsent = NULL;
        while (q->head)
                far_failed(take_oldest(rn, q, false));
}
