/*
 * The list of connections, and how connections end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "admission/party.h"
#include "common/clock.h"
#include "memnode.h"
#include "rdma/connection.h"

bool rdma_ending, rdma_draining;
struct rdma_counts rdma_counts;
struct connection *connections;
static struct connection *ended;        /* by next_ended */

static atomic_uint *counter(const struct connection *c)
{
        return c->kind == NODE_CONTROL ? &rdma_counts.control : &rdma_counts.data;
}

void connection_add(struct connection *c)
{
        c->next = connections;
        connections = c;
        atomic_fetch_add_explicit(counter(c), 1, memory_order_relaxed);
}

static void unlink_connection(const struct connection *c)
{
        for (struct connection **p = &connections; *p; p = &(*p)->next) {
                if (*p == c) {
                        *p = c->next;
                        atomic_fetch_sub_explicit(counter(c), 1, memory_order_relaxed);
                        return;
                }
        }
}

void connection_release(struct connection *c)
{
        if (c->id->qp)
                rdma_destroy_qp(c->id);
        if (c->cq)
                ibv_destroy_cq(c->cq);
        if (c->mr)
                ibv_dereg_mr(c->mr);
        free(c->buffers);
        explicit_bzero(&c->key, sizeof(c->key));
        if (c->party) {
                party_disconnect(c->party);
                party_put(c->party);
        }
}

void connection_drop_job(struct connection *c)
{
        if (c->job && worker_drop(c->job))
                c->job->undo(c->job);
        c->job = NULL;
}

void connection_end(struct connection *c)
{
        connection_drop_job(c);
        unlink_connection(c);
        if (c->client && c->kind == NODE_CONTROL)
                c->client->controls--;
        rdma_disconnect(c->id);         /* tells the other side, if it still is there */
        connection_release(c);
        rdma_destroy_id(c->id);
        c->ended = true;
        c->next_ended = ended;
        ended = c;
}

void connections_reap(void)
{
        for (struct connection *c; (c = ended);) {
                ended = c->next_ended;
                free(c);
        }
}

void connection_lost(struct connection *c, const char *why)
{
        struct client *cl = c->kind == NODE_CONTROL ? c->client : NULL;

        if (cl && !c->moved)
                members_await(&cl->members, c->member);
        if (cl && cl->controls > 1) {
                info_("a process of %s at %s is gone: %s", cl->name, c->peer, why);
                connection_end_member(cl, c->member);
        } else if (cl) {
                uint32_t grace = __atomic_load_n(&opt.grace_ms, __ATOMIC_RELAXED);
                warnx_("%s at %s is gone: %s; it may come back for %u s", cl->name, c->peer, why,
                       grace / 1000);
                cl->gone_at = now_ms();
                cl->answered = c->answered;
        } else {
                info_("connection of %s ended: %s", c->peer, why);
        }
        connection_end(c);
}

static void end_data(const struct client *cl, const uint64_t *member)
{
        for (struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_DATA && c->client == cl && (!member || c->member == *member))
                        connection_end(c);
}

void connection_end_data(const struct client *cl) { end_data(cl, NULL); }
void connection_end_member(const struct client *cl, uint64_t member) { end_data(cl, &member); }

void connection_end_cut(struct client *cl, const struct connection *self)
{
        for (struct connection *c = connections; c; c = c->next)
                if (c != self && c->client == cl && members_is_cut(&cl->members, c->member)) {
                        info_("a process of %s at %s is cut off", cl->name, c->peer);
                        connection_end(c);
                }
}

void connection_disown(const struct client *cl)
{
        for (struct connection *c = connections; c; c = c->next) {
                if (c->kind == NODE_CONTROL && c->client == cl) {
                        connection_drop_job(c);
                        c->client = NULL;
                        /* ends at the next tick, since the caller may still use it */
                        c->closing = true;
                        c->deadline = now_ms() + HELLO_MS;
                }
        }
}
