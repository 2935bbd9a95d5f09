/*
 * See leave.h.
 */
#include <stdatomic.h>
#include <window.h>
#include "base/message.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/leave.h"
#include "far/nodes.h"
#include "far/repair.h"
#include "far/request.h"
#include "include/tree.h"
#include "vm/vm.h"

static _Atomic bool some;               /* far_asked() was called; relaxed: a hint */

/* By node; all belong to the I/O side. */
static struct leaving {
        int64_t since;                  /* ms: when it was heard; 0: not yet */
        uint64_t pages;                 /* that had been copied by then */
        bool answered;                  /* that it cannot be left */
        bool over;                      /* it was left */
} leaving[NODES_MAX];

void far_asked(struct far_node *n)
{
        atomic_store_explicit(&n->asked, true, memory_order_relaxed);
        atomic_store_explicit(&some, true, memory_order_relaxed);
}

bool leave_is_asked(void) { return atomic_load_explicit(&some, memory_order_relaxed); }

static struct copies copies(void)
{
        return (struct copies){ .units = (char *)TREE_WINDOW, .self = CONTROL->tree_number };
}

static bool is_target(const struct far_node *n, const struct far_node *for_n)
{
        return n != for_n && n->driver->kind == SLAB_REMOTE && n->fences && !n->lost &&
               !is_set(&n->asked) && !is_set(&n->is_left);
}

/* Is there no other node at all?  Then no thread needs to look. */
static bool is_lone(const struct far_node *n)
{
        for (unsigned i = 0; i < far_nodes(); i++)
                if (is_target(far_node_at(i), n))
                        return false;
        return true;
}

/* All slabs of this process have a place on a node that stays, so what is written next goes there,
 * too. */
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
                              (far_answers(n) && !copies_leave(&c, n));
                }
                if (!has)
                        return false;
        }
        return true;
}

/* Nothing of this process is only there. */
static bool may_leave(const struct far_node *n)
{
        return atomic_load_explicit(&n->noted, memory_order_acquire) && repair_is_free() &&
               all_have_places();
}

void leave_is_over(struct far_node *n)
{
        atomic_store_explicit(&n->is_left, true, memory_order_relaxed);
        far_lost(n, false, "it was left, as it had asked for");
        n->settled = true;
}

static struct tree_common *common(void) { return (struct tree_common *)TREE_WINDOW; }

/* A process that the node has not asked has slots: a child, born since moves.c looked.  As long as
 * its parent lives, which has not answered, the node waits; but that may be killed.  Acquire: who
 * sees slots counted for a number sees what was stored of it before, when the number was taken:
 * `asked` is 0, and `left` is as of the parent. */
static bool has_strangers(const struct far_node *n)
{
        const struct tree_common *c = common();
        const uint32_t processes = atomic_load_explicit(&c->numbers, memory_order_acquire);

        for (uint32_t p = 0; p < processes; p++) {
                const struct tree_process *o = &c->process[p];
                /* In this order: the number may have been another process's. */
                uint64_t held = atomic_load_explicit(&o->owned, memory_order_acquire) +
                                atomic_load_explicit(&o->shared, memory_order_acquire);
                uint64_t known = atomic_load_explicit(&o->asked, memory_order_acquire) |
                                 atomic_load_explicit(&o->left, memory_order_acquire);
                if (p != CONTROL->tree_number && held && !(known >> n->index & 1))
                        return true;
        }
        return false;
}

/* Release: `left` is for processes that look whether they may answer (moves.c). */
static void note_left(const struct far_node *n)
{
        struct tree_common *c = common();

        if (CONTROL->nslabs)
                atomic_fetch_or_explicit(&c->process[CONTROL->tree_number].left, 1ull << n->index,
                                         memory_order_release);
}

const char *leave_state(const struct far_node *n)
{
        /* Left, but not answered, it still waits for other processes of the tree.  Acquire: as all
         * threads but the owner read it. */
        if (is_set(&n->is_left))
                return __atomic_load_n(&n->lost, __ATOMIC_ACQUIRE) ? "left" : "leaving";
        return !is_set(&n->asked) ? NULL : is_set(&n->stuck) ? "cannot be left" : "leaving";
}

static unsigned leave(struct far_node *n, struct leaving *l)
{
        if (!is_set(&n->is_left)) {
                if (!may_leave(n))
                        return 0;
                atomic_store_explicit(&n->is_left, true, memory_order_relaxed);
                request_hand_back(n);
                note_left(n);
        }
        /* It may end before it is answered. */
        if (!n->lost &&
            (!request_is_idle(n) || !is_set(&n->unneeded) || has_strangers(n) ||
             !n->driver->answer(n, true)))
                return 0;
        l->over = true;
        leave_is_over(n);
        warnx_("%s: it is left: %llu pages were copied from it or for it in %.1f s",
               n->option->origin, (unsigned long long)(repair_pages() - l->pages),
               (double)(now_ms() - l->since) / 1000);
        return 1;
}

static void say_stuck(struct far_node *n, struct leaving *l)
{
        if (!n->driver->answer(n, false))
                return;
        l->answered = true;
        warnx_("%s: it cannot be left, since no other node has room for its pages: what is only "
               "there is lost when it ends, but for a memnode with --resume: name more nodes with "
               "--node, of memnodes",
               n->option->origin);
}

unsigned leave_step(void)
{
        unsigned work = 0;

        if (!leave_is_asked())
                return 0;
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                struct leaving *l = &leaving[i];
                if (!is_set(&n->asked) || l->over || (n->lost && !is_set(&n->is_left)))
                        continue;
                if (!l->since) {
                        l->since = now_ms();
                        l->pages = repair_pages();
                        warnx_("%s: it asks to be left: its pages move to other nodes",
                               n->option->origin);
                }
                work += leave(n, l);
                if (!n->lost && !l->answered && (is_set(&n->stuck) || is_lone(n)))
                        say_stuck(n, l);
        }
        return work;
}

/* Its own thread looks for what it waits for, and drivers that have not finished an answer. */
#define LOOK_MS 20

int leave_patience(void)
{
        for (unsigned i = 0; leave_is_asked() && i < far_nodes(); i++)
                if (is_set(&far_node_at(i)->asked) && !far_node_at(i)->lost)
                        return LOOK_MS;
        return -1;
}

void leave_put_off(void)
{
        for (unsigned i = 0; leave_is_asked() && i < far_nodes(); i++)
                if (!is_set(&far_node_at(i)->is_left))      /* else the child is born without it */
                        atomic_store(&far_node_at(i)->unneeded, false);
}

/* What the parent was told by the node was for the parent; but what it had left, answered or not,
 * the child has no page on. */
void leave_forked(void)
{
        for (unsigned i = 0; i < far_nodes(); i++) {
                struct far_node *n = far_node_at(i);
                leaving[i] = (struct leaving){ 0 };
                atomic_store_explicit(&n->asked, false, memory_order_relaxed);
                atomic_store_explicit(&n->noted, false, memory_order_relaxed);
                atomic_store_explicit(&n->stuck, false, memory_order_relaxed);
                atomic_store_explicit(&n->unneeded, false, memory_order_relaxed);
                if (is_set(&n->is_left))
                        leave_is_over(n);
        }
        atomic_store_explicit(&some, false, memory_order_relaxed);
}
