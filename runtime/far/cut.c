/*
 * Cutting off the connections of dead processes at all nodes of the tree.  See cut.h.
 */
#include <errno.h>
#include <string.h>
#include "base/message.h"
#include "common/clock.h"
#include "far/cut.h"
#include "far/io.h"

/* The longest time for one node to cut off dead processes, and the pause if it did not. */
#define CUT_MS       1000
#define CUT_AGAIN_MS 5000

/* Nodes that the tree has slabs of: a set. */
static uint64_t used_locked(const struct tree *t)
{
        uint64_t used = 0;

        for (uint32_t i = 0; i < t->head->nslabs; i++)
                for (uint32_t k = 0; k < t->head->slab[i].places; k++)
                        used |= 1ull << t->head->slab[i].place[k].node;
        return used;
}
_Static_assert(NODES_MAX <= 64, "a set of nodes is a word");

/* Nodes whose slabs have bits, so that the dead may be buried without the node's answer
 * (docs/protocol.md, rules 14 and 21): with copies all that hand back, else draining nodes
 * (drain.h, [L]). */
static uint64_t copied_locked(const struct tree *t)
{
        return opt.replicas > 1 ? UINT64_MAX
                                : atomic_load(&tree_common(t->units)->draining);
}

/* Has the nodes that this process knows cut off the dead.  Returns those of `used` that have not, a
 * set.  A node that had no slab when they were dead (not in `used`) has no slot of theirs, nor has
 * a node whose memory is gone.  But such nodes are told if they can be, since a node remembers its
 * members until then.  copied: nodes whose pages have copies elsewhere. */
static uint64_t cut_at_nodes(const struct cutter *c, struct vm *vm, const struct tree_dead *d,
                             uint64_t used, uint64_t copied)
{
        char why[FAR_WHY];

        pthread_mutex_lock(c->lease_lock);
        io_start(vm, c->tree->pieces);
        pthread_mutex_unlock(c->lease_lock);
        io_wait_attached();
        const unsigned known = c->nnodes;
        /* Another process of the tree has found the other nodes (slabs_learn()): the dead may have
         * used them. */
        uint64_t left = known < NODES_MAX ? used >> known << known : 0;

        if (left)
                info_("far memory: dead processes cannot be cut off now at a node that is served "
                      "again: this process does not use it yet");
        for (unsigned i = 0; i < known; i++) {
                struct far_node *n = c->nodes[i];
                if (n->driver->kind != SLAB_REMOTE || !n->fences)
                        continue;
                /* Lost for this process: other processes may still reach the node, and so may
                 * writes of the dead. */
                const bool unheard = n->lost && copied >> i & 1;
                int err = unheard ? -ENOLINK : n->driver->cut(n, d->range, d->n, CUT_MS, why);
                if (unheard)
                        memcpy(why, n->why, FAR_WHY);
                if (err)
                        info_("%s: dead processes cannot be cut off now: %s", n->option->origin,
                              why);
                if (err && err != -ESTALE)
                        left |= used & 1ull << i;
        }
        return left;
}

bool cut_dead(struct cutter *c, struct vm *vm)
{
        struct tree *t = c->tree;
        struct tree_dead d;
        uint64_t freed = 0;

        if (pthread_mutex_trylock(&c->lock) != 0)
                return false;           /* another thread does it */
        if (now_ms() >= c->next) {
                tree_lock(t);
                tree_dead_locked(t, &d);
                uint64_t used = used_locked(t), copied = copied_locked(t);
                tree_unlock(t);
                uint64_t left = d.n ? cut_at_nodes(c, vm, &d, used, copied) : 0;
                if (d.n && !(left & ~copied)) {
                        tree_lock(t);
                        tree_cut_locked(t, &d, left);
                        freed = tree_mend_locked(t);
                        tree_unlock(t);
                } else if (d.n) {
                        c->next = now_ms() + CUT_AGAIN_MS;
                }
        }
        pthread_mutex_unlock(&c->lock);
        return freed > 0;
}
