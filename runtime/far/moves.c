/*
 * See slabs.h: places on other nodes for slabs whose nodes are lost, silent, or draining (drain.h).
 * repair.c fills them.
 */
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/clock.h"
#include "far/drain.h"
#include "far/io.h"
#include "far/moves.h"
#include "far/nodes.h"
#include "far/outage.h"
#include "far/repair.h"
#include "far/slabs.h"
#include "far/slabs_more.h"

/* Looks for nodes, drained or lost, that are served again.  By moves_then(). */
static void (*look_for_returned)(struct vm *vm);

/* ---- draining nodes (drain.h) ---- */

/* copies.h, [B]: each page that was written is at the first place. */
static void give_bits(uint32_t i)
{
        struct slab_map *map = tree_map(leases.tree.units, i);

        if (places_have_bits(i))
                return;
        memset((void *)map->good[0], 0xff, sizeof(map->good[0]));
        atomic_store(&map->places, 1);
}

static bool is_on(uint32_t slab, const struct far_node *n)
{
        const struct tree_slab *t = &leases.tree.head->slab[slab];

        for (uint32_t k = 0; k < t->places; k++)
                if (t->place[k].node == n->index)
                        return true;
        return false;
}

/* With the locks held.  The node itself has asked this process. */
static void note_asked(const struct far_node *n)
{
        atomic_fetch_or(&slabs_common()->process[leases.tree.self].asked, 1ull << n->index);
        if (is_draining(n))
                return;
        for (uint32_t i = 0; i < leases.tree.head->nslabs; i++)
                if (is_on(i, n))
                        give_bits(i);
        /* [L] */
        atomic_fetch_or(&slabs_common()->draining, 1ull << n->index);
}

/* With the locks held, after places were added where that was possible. */
static bool is_stuck(const struct far_node *n)
{
        int64_t now = now_ms();

        for (uint32_t i = 0; i < CONTROL->nslabs; i++) {
                const struct far_slab *f = far_slab(i);
                bool on = false, live = false;
                for (unsigned k = 0; k < f->places; k++) {
                        on |= f->place[k].node == n;
                        live |= !place_is_gone(f->place[k].node, now);
                }
                if (on && !live)
                        return true;
        }
        return false;
}

/* This process is to move its pages from the node. */
static bool is_moving(const struct far_node *n) { return is_set(&n->asked) && !n->lost; }

static void heed_asked(void)
{
        for (unsigned i = 0; i < leases.nnodes; i++) {
                struct far_node *n = leases.nodes[i];
                if (!is_moving(n))
                        continue;
                note_asked(n);
                /* Release: the node is in tree_common.draining, and its slabs have bits. */
                atomic_store_explicit(&n->noted, true, memory_order_release);
        }
}

static bool has_dead(void)
{
        for (uint32_t p = 0; p < atomic_load(&slabs_common()->numbers); p++)
                if (leases.tree.head->record[p].state == RECORD_DEAD)
                        return true;
        return false;
}

/* With the locks held.  True: dead processes are to be cut off, since a drain waits until they are
 * buried: their slots count (drain.c), and one may be the repairer (held.h). */
static bool judge_asked(void)
{
        bool moves = false;

        for (unsigned i = 0; i < leases.nnodes; i++) {
                struct far_node *n = leases.nodes[i];
                if (!is_moving(n) || !is_set(&n->noted))        /* may have asked since */
                        continue;
                moves = true;
                atomic_store_explicit(&n->stuck, is_stuck(n), memory_order_relaxed);
        }
        if (moves)
                tree_mend_locked(&leases.tree);
        return moves && has_dead();
}

/* With one copy of each page there is nothing to look for unless a node drains. */
static bool has_work(void)
{
        return leases.in_tree && (opt.replicas > 1 || drain_is_asked() || slabs_draining());
}

void moves_look(struct vm *vm)
{
        unsigned added = 0, found = 0;
        bool dead = false;

        io_keep();
        pthread_mutex_lock(&leases.lock);
        bool work = has_work();
        if (work) {
                tree_lock(&leases.tree);
                slabs_learn();
                slabs_pull();
                heed_asked();
                for (uint32_t i = 0; i < CONTROL->nslabs; i++) {
                        struct slab s = CONTROL->slabs[i];
                        while (far_slab(i)->places < leases.tree.head->slab[i].places &&
                               place_use(vm, i, &s) == 0)
                                found++;
                        added += place_add_copy(vm, i);
                }
                dead = judge_asked();
                slabs_push();
                tree_unlock(&leases.tree);
        }
        pthread_mutex_unlock(&leases.lock);
        if (added)
                warnx_("far memory: %u slab%s get%s new copies on other nodes", added,
                       added == 1 ? "" : "s", added == 1 ? "s" : "");
        /* Nodes that answer again are told which processes died meanwhile; and requests that no
         * node can carry out may wait for that. */
        if (work &&
            (dead || atomic_load(&slabs_common()->uncut) & ~slabs_down() || outage_waits()))
                cut_dead(&leases.cutter, vm);
        if (added || found)
                repair_wanted();
        if (work && look_for_returned)
                look_for_returned(vm);
}

void moves_then(void (*look)(struct vm *vm)) { look_for_returned = look; }
