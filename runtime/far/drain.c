/*
 * Draining a node: when its pages have moved, and the answer to it.  See drain.h.
 */
#include <stdatomic.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/direct.h"
#include "far/drain.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/request.h"
#include "include/allocator.h"

static struct drain {
        /* far_asked() was called, by any thread.  Relaxed: a hint. */
        _Atomic bool asked;
        /* By the I/O side, for itself. */
        struct node_drain {
                int64_t since;          /* ms: when the node's wish was heard; 0: not yet */
                uint64_t pages;         /* that this process had copied by then */
                bool refused;           /* the node was told that it cannot be drained */
                bool over;              /* the node is drained */
        } node[NODES_MAX];
} drain;

void far_asked(struct far_node *n)
{
        atomic_store_explicit(&n->asked, true, memory_order_relaxed);
        atomic_store_explicit(&drain.asked, true, memory_order_relaxed);
}

bool drain_is_asked(void) { return atomic_load_explicit(&drain.asked, memory_order_relaxed); }

/* Can pages of node `from` move to n? */
static bool is_target(const struct far_node *n, const struct far_node *from)
{
        return n != from && n->driver->kind == SLAB_REMOTE && n->fences && !n->lost &&
               !is_set(&n->asked) && !is_set(&n->is_drained);
}

/* Can its pages move to no other node at all?  Then moves.c has nothing to look for. */
static bool is_lone(const struct far_node *n)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (is_target(far_node_at(i), n))
                        return false;
        return true;
}

/* Has each slab of this process a place on a node that stays?  The next writes go there, too. */
static bool all_have_places(void)
{
        const struct copies c = copies();

        for (uint32_t i = 0; i < CONTROL->nslabs; i++) {
                const struct far_slab *s = far_slab(i);
                unsigned places = atomic_load_explicit(&s->places, memory_order_acquire);
                bool has = false;

                for (unsigned k = 0; k < places && !has; k++) {
                        const struct far_node *n = s->place[k].node;
                        has = n->driver->kind != SLAB_REMOTE ||
                              (far_answers(n) && !copies_drain(&c, n));
                }
                if (!has)
                        return false;
        }
        return true;
}

/* No page of this process is on this node only. */
static bool may_end(const struct far_node *n)
{
        return atomic_load_explicit(&n->noted, memory_order_acquire) && repair_has_drained() &&
               all_have_places();
}

void drain_is_over(struct far_node *n)
{
        atomic_store_explicit(&n->is_drained, true, memory_order_relaxed);
        far_lost(n, false, "the node is drained, as it asked for");
        n->settled = true;
}

/* Does it hold slots, perhaps? */
static bool holds_slots(const struct tree_process *o)
{
        /* A slot may move from one count to the other meanwhile, and is counted there first: to
         * `owned` when a page that is shared gets a slot of its own, so that is read last; to
         * `shared` by a fork, which `lent` tells. */
        const uint64_t lent = atomic_load_explicit(&o->lent, memory_order_acquire);

        return atomic_load_explicit(&o->shared, memory_order_acquire) ||
               atomic_load_explicit(&o->owned, memory_order_acquire) ||
               atomic_load_explicit(&o->lent, memory_order_acquire) != lent;
}

/* Has a process slots that the node has not asked: a child, mostly?  As long as its parent lives,
 * which has not answered, the node waits; but the parent may be killed, or be this process.
 * [I] Asked once the node is drained for this process.  So a child of this process that is not seen
 * here, as it has no slots yet, will be born without the node.
 * Acquire: if this process sees slots counted for a number, it sees what was stored when the number
 * was taken: `asked` is 0, and `drained` is as of the parent. */
static bool has_unasked(const struct far_node *n)
{
        const struct tree_common *c = TREE_COMMON;
        const uint32_t processes = atomic_load_explicit(&c->numbers, memory_order_acquire);

        for (uint32_t p = 0; p < processes; p++) {
                const struct tree_process *o = &c->process[p];
                const bool held = holds_slots(o);
                /* Then this: the number may have been another process's. */
                uint64_t known = atomic_load_explicit(&o->asked, memory_order_acquire) |
                                 atomic_load_explicit(&o->drained, memory_order_acquire);
                if (p != CONTROL->tree_number && held && !(known >> n->index & 1))
                        return true;
        }
        return false;
}

/* Release: other processes read `drained` to see whether they may answer (moves.c). */
static void note_drained(const struct far_node *n)
{
        struct tree_common *c = TREE_COMMON;

        if (CONTROL->nslabs)
                atomic_fetch_or_explicit(&c->process[CONTROL->tree_number].drained,
                                         1ull << n->index, memory_order_release);
}

const char *drain_state(const struct far_node *n)
{
        /* A node that was not answered yet still waits for other processes of the tree. */
        if (is_set(&n->is_drained))
                return n->lost ? "drained" : "draining";
        return !is_set(&n->asked) ? NULL : is_set(&n->stuck) ? "cannot be drained" : "draining";
}

/* Returns how much there was to do. */
static unsigned drain_node(struct far_node *n, struct node_drain *d)
{
        if (!is_set(&n->is_drained)) {
                if (!may_end(n) || !direct_is_idle(n))
                        return 0;
                atomic_store_explicit(&n->is_drained, true, memory_order_relaxed);
                request_hand_back(n);
                note_drained(n);
        }
        /* The node may end before it is answered. */
        if (!n->lost && (!direct_is_idle(n) || !request_is_idle(n) || has_unasked(n) ||
                         !n->driver->answer(n, true)))
                return 0;
        d->over = true;
        drain_is_over(n);
        warnx_("%s: the node is drained: %llu pages were copied from it or for it in %.1f s",
               n->option->origin, (unsigned long long)(repair_pages() - d->pages),
               (double)(now_ms() - d->since) / 1000);
        return 1;
}

static void refuse(struct far_node *n, struct node_drain *d)
{
        if (!n->driver->answer(n, false))
                return;
        d->refused = true;
        warnx_("%s: the node cannot be drained, since no other node has room for its pages: pages "
               "that only this node has are lost when it ends, but for a memnode with --resume: "
               "name more nodes with --node, of memnodes",
               n->option->origin);
}

unsigned drain_step(void)
{
        unsigned work = 0;

        if (!drain_is_asked())
                return 0;
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                struct node_drain *d = &drain.node[i];
                if (!is_set(&n->asked) || d->over || (n->lost && !is_set(&n->is_drained)))
                        continue;
                if (!d->since) {
                        d->since = now_ms();
                        d->pages = repair_pages();
                        warnx_("%s: memnode is draining: moving its pages to other nodes",
                               n->option->origin);
                }
                work += drain_node(n, d);
                if (!n->lost && !d->refused && (is_set(&n->stuck) || is_lone(n)))
                        refuse(n, d);
        }
        return work;
}

/* Between two steps: other processes are asked meanwhile, and drivers finish an answer. */
#define LOOK_MS 20

int drain_patience(void)
{
        for (unsigned i = 0; drain_is_asked() && i < far_nodes(); i++)
                if (is_set(&far_node_at(i)->asked) && !far_node_at(i)->lost)
                        return LOOK_MS;
        return -1;
}

/* A node's wish that the parent heard was for the parent.  But on nodes that were drained for the
 * parent, answered or not, the child has no page. */
void drain_forked(void)
{
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                atomic_store_explicit(&n->asked, false, memory_order_relaxed);
                atomic_store_explicit(&n->noted, false, memory_order_relaxed);
                atomic_store_explicit(&n->stuck, false, memory_order_relaxed);
                if (is_set(&n->is_drained))
                        drain_is_over(n);
        }
        memset(drain.node, 0, sizeof(drain.node));
        atomic_store_explicit(&drain.asked, false, memory_order_relaxed);
}
