/*
 * Nodes that break, and the transfers that they hand back.
 *
 *   far_down()      by a driver: the node takes nothing for now.  Its transfers come back by
 *                   far_failed() (request.c)
 *   far_lost()      by a driver: the node will not come back (nodes.c)
 *   outage_step()   has their requests go on at other nodes, and tries stranded ones again.  Ends
 *                   the program if a page is lost with a node, or after --timeout
 *   far_up()        by a driver: the node takes transfers again
 */
#include <stdatomic.h>
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/nodes.h"
#include "far/outage.h"
#include "far/repair.h"
#include "far/request.h"

#define PATIENCE_MS 10                  /* between two attempts at stranded requests */
/* Between two looks at the clock: in the rest of a longer gap this process did not run. */
#define GAP_MS      50

static struct {
        /* Ends the program for a lost node, and does not return.  Stored once by far_init(). */
        void (*on_loss)(const struct far_node *n);
        /* By the I/O side, both by now_ms(): when patient_ms was counted last; when stranded
         * requests are tried next. */
        int64_t looked, next_try;
} outage;

void outage_on_loss(void (*owner)(const struct far_node *n)) { outage.on_loss = owner; }

void outage_forked(void)
{
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                bool was_up = n->hands_back && (is_set(&n->up) || far_expected(n));
                atomic_store_explicit(&n->expected_until, was_up ? INT64_MAX : 0,
                                      memory_order_relaxed);
                atomic_store_explicit(&n->up, !n->hands_back, memory_order_relaxed);
                n->down_since = 0;
        }
}

void outage_attached(struct far_node *n)
{
        if (atomic_load_explicit(&n->expected_until, memory_order_relaxed) == INT64_MAX)
                atomic_store_explicit(&n->expected_until, now_ms() + opt.timeout_ms / 2,
                                      memory_order_relaxed);
}

void far_down(struct far_node *n, const char *why)
{
        const struct copies c = copies();

        if (n->writing)
                copies_unfenced(&c, n);
        repair_needed();
        atomic_store_explicit(&n->up, false, memory_order_relaxed);
        n->down_since = now_ms();
        atomic_store_explicit(&n->expected_until, 0, memory_order_relaxed);
        count_one(&n->breaks);
        warnx_("%s: %s: its pages are read from other nodes, as far as they have them",
               n->option->origin, why);
        request_hand_back(n);
}

void far_up(struct far_node *n)
{
        const struct copies c = copies();

        n->failed = false;
        atomic_store_explicit(&n->up, true, memory_order_relaxed);
        if (n->down_since) {            /* else it is new */
                copies_fenced(&c, n);
                warnx_("%s: it answers again, after %.1f s", n->option->origin,
                       (double)(now_ms() - n->down_since) / 1000);
        }
        n->down_since = 0;
        atomic_store_explicit(&n->expected_until, 0, memory_order_relaxed);
        repair_wanted();
}

/* A transfer of the node was handed back, and outage_step() has not handled it yet. */
static bool has_failed(const struct far_node *n)
{
        for (const struct far_request *r = requests.failed; r; r = r->next)
                if (r->place->node == n)
                        return true;
        return false;
}

/* Says nothing of a drained node: drain.c does. */
static void say_lost(const struct far_node *n, bool copied)
{
        if (is_set(&n->is_drained))
                return;
        if (copied)
                warnx_("%s: %s: it is lost, and the program goes on with the other copies of its "
                       "pages", n->option->origin, n->why);
        else
                warnx_("%s: %s: nothing was there yet, so the program goes on without it",
                       n->option->origin, n->why);
}

/* The node is lost.  Without copies, a failed transfer is a lost page, and the program ends.  Pages
 * of a draining node may have copies: the program ends when it asks for a page without a copy. */
static void handle_loss(struct far_node *n)
{
        const struct copies c = copies();
        /* Without pieces there is no tree yet, so nothing has copies. */
        bool copied = n->hands_back || (requests.pieces && copies_drain(&c, n));

        if (!copied && (n->lost_pages || has_failed(n)))
                outage.on_loss(n);
        if (!n->hands_back && n->writing)
                copies_unfenced(&c, n);         /* before its writes count as over */
        repair_needed();
        say_lost(n, copied);
        n->settled = true;
}

/* A node of the request's slab, for messages: the last that is lost, else the first. */
static const struct far_node *culprit(const struct request *q)
{
        for (unsigned k = q->slab->places; k-- > 0; )
                if (q->slab->place[k].node->lost)
                        return q->slab->place[k].node;
        return q->slab->place[0].node;
}

static void retry(struct request *q)
{
        const struct copies c = copies();
        struct far_node *n = (struct far_node *)culprit(q);

        if (is_write(q) ? copies_all_lost(&c, q->slab, q->slot) : copies_gone(&c, q->slab, q->slot))
                outage.on_loss(n);
        if (requests.patient_ms - q->stranded > opt.timeout_ms) {
                far_lost(n, true, "no node with a right copy of a page has answered for %u s",
                         opt.timeout_ms / 1000);
                outage.on_loss(n);
        }
        request_send(q);
}

/* Time in which this process did not run is not the nodes' silence. */
static void count_patience(void)
{
        int64_t now = now_ms(), gap = now - outage.looked;

        if (requests.stranded)
                requests.patient_ms += gap < GAP_MS ? gap : GAP_MS;
        outage.looked = now;
}

static unsigned retry_stranded(void)
{
        count_patience();
        if (!requests.stranded || outage.looked < outage.next_try)
                return 0;
        struct request *q = requests.stranded, *after;
        unsigned n = 0;
        outage.next_try = outage.looked + PATIENCE_MS;
        requests.stranded = NULL;
        atomic_store_explicit(&requests.waiting, false, memory_order_relaxed);
        for (; q; q = after, n++) {
                after = q->next;
                retry(q);
        }
        return n;
}

unsigned outage_step(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < far_nodes(); i++)
                if (far_node_at(i)->lost && !far_node_at(i)->settled)
                        handle_loss(far_node_at(i));
        while (requests.failed) {
                struct far_request *r = requests.failed;
                requests.failed = r->next;
                n++;
                request_go_without(r);
        }
        return requests.stranded ? n + retry_stranded() : n;
}

bool outage_waits(void) { return atomic_load_explicit(&requests.waiting, memory_order_relaxed); }

int outage_patience(void) { return requests.failed ? 0 : requests.stranded ? PATIENCE_MS : -1; }
