/*
 * See slabs.h: places on other nodes for slabs whose nodes are lost, silent, or to be left
 * (leave.h).  repair.c fills them.
 */
#include <string.h>
#include "base/message.h"
#include "common/clock.h"
#include "far/io.h"
#include "far/leave.h"
#include "far/moves.h"
#include "far/nodes.h"
#include "far/outage.h"
#include "far/repair.h"
#include "far/slabs.h"
#include "far/slabs_more.h"
#include "vm/vm.h"

static void (*then)(struct vm *vm);     /* moves_then() */

/* ---- nodes that are to be left (leave.h) ---- */

/* copies.h, [B]: all that was written is at the first place. */
static void give_bits(uint32_t i)
{
        struct slab_map *map = tree_map(seq.tree.units, i);

        if (places_have_bits(i))
                return;
        memset((void *)map->good[0], 0xff, sizeof(map->good[0]));
        atomic_store(&map->places, 1);
}

static bool is_on(uint32_t slab, const struct far_node *n)
{
        const struct tree_slab *t = &seq.tree.head->slab[slab];

        for (uint32_t k = 0; k < t->places; k++)
                if (t->place[k].node == n->index)
                        return true;
        return false;
}

/* With the locks held.  The node itself has asked this process. */
static void note_asked(const struct far_node *n)
{
        atomic_fetch_or(&slabs_common()->process[seq.tree.self].asked, 1ull << n->index);
        if (is_leaving(n))
                return;
        for (uint32_t i = 0; i < seq.tree.head->nslabs; i++)
                if (is_on(i, n))
                        give_bits(i);
        /* [L] */
        atomic_fetch_or(&slabs_common()->leaving, 1ull << n->index);
}

/* With the locks held.  Every other process that has slots has been asked by the node itself, so it
 * answers for itself, or has left. */
static bool is_unneeded(const struct far_node *n)
{
        tree_mend_locked(&seq.tree);
        for (uint32_t p = 0; p < atomic_load(&slabs_common()->numbers); p++) {
                const struct tree_process *o = &slabs_common()->process[p];
                if (p == seq.tree.self || seq.tree.head->record[p].state != RECORD_USED ||
                    atomic_load(&o->owned) + atomic_load(&o->shared) == 0)
                        continue;
                if (!((atomic_load(&o->asked) | atomic_load(&o->left)) >> n->index & 1))
                        return false;
        }
        return true;
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

static bool is_moving(const struct far_node *n) { return is_set(&n->asked) && !n->lost; }

static void heed_asked(void)
{
        for (unsigned i = 0; i < seq.nnodes; i++) {
                struct far_node *n = seq.nodes[i];
                if (!is_moving(n))
                        continue;
                note_asked(n);
                /* Release: it is in the set, and its slabs have bits. */
                atomic_store_explicit(&n->noted, true, memory_order_release);
        }
}

static bool has_dead(void)
{
        for (uint32_t p = 0; p < atomic_load(&slabs_common()->numbers); p++)
                if (seq.tree.head->record[p].state == RECORD_DEAD)
                        return true;
        return false;
}

/* True: dead processes are to be buried, since they may hold what others wait for, as the right to
 * copy shared slots (repair.c). */
static bool judge_asked(void)
{
        bool moves = false;

        for (unsigned i = 0; i < seq.nnodes; i++) {
                struct far_node *n = seq.nodes[i];
                if (!is_moving(n) || !is_set(&n->noted))        /* it may have asked since */
                        continue;
                moves = true;
                atomic_store_explicit(&n->stuck, is_stuck(n), memory_order_relaxed);
                atomic_store_explicit(&n->unneeded, is_unneeded(n), memory_order_relaxed);
        }
        return moves && has_dead();
}

/* With one copy of each page there is nothing to look for unless a node is to be left. */
static bool has_work(void)
{
        return seq.in_tree && (opt.replicas > 1 || leave_is_asked() || slabs_leaving());
}

void moves_look(struct vm *vm)
{
        unsigned added = 0, found = 0;
        bool dead = false;

        io_keep();
        pthread_mutex_lock(&seq.lock);
        bool work = has_work();
        if (work) {
                tree_lock(&seq.tree);
                slabs_learn();
                slabs_pull();
                heed_asked();
                for (uint32_t i = 0; i < CONTROL->nslabs; i++) {
                        struct slab s = CONTROL->slabs[i];
                        while (far_slab(i)->places < seq.tree.head->slab[i].places &&
                               place_use(vm, i, &s) == 0)
                                found++;
                        added += place_add_copy(vm, i);
                }
                dead = judge_asked();
                slabs_push();
                tree_unlock(&seq.tree);
        }
        pthread_mutex_unlock(&seq.lock);
        if (added)
                warnx_("far memory: %u slab%s get%s new copies on other nodes", added,
                       added == 1 ? "" : "s", added == 1 ? "s" : "");
        /* Nodes that answer again are told who died meanwhile; and what waits may wait for that. */
        if (work &&
            (dead || atomic_load(&slabs_common()->uncut) & ~slabs_down() || outage_waits()))
                cut_dead(&seq.cutter, vm);
        if (added || found)
                repair_wanted();
        if (work && then)
                then(vm);
}

void moves_then(void (*look)(struct vm *vm)) { then = look; }
