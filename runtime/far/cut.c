/*
 * See cut.h.
 */
#include <errno.h>
#include <string.h>
#include "base/message.h"
#include "common/clock.h"
#include "far/cut.h"
#include "far/io.h"

/* for one node to cut off dead processes, and how long to leave it alone if it does not */
#define CUT_MS       1000
#define CUT_AGAIN_MS 5000

/* A set of nodes: those that the tree has slabs of. */
static uint64_t used_locked(const struct tree *t)
{
        uint64_t used = 0;

        for (uint32_t i = 0; i < t->head->nslabs; i++)
                for (uint32_t k = 0; k < t->head->slab[i].places; k++)
                        used |= 1ull << t->head->slab[i].place[k].node;
        return used;
}
_Static_assert(NODES_MAX <= 64, "a set of nodes is a word");

/* True: all nodes have cut off the dead, or are silent and their pages have copies elsewhere
 * (*silent, a set).  A node that had no slab (not in `used`) when they were
 * dead has no slot of theirs, and one whose memory is gone neither; but it is told if it can be,
 * since it remembers its members until then. */
static bool cut_everywhere(const struct cutter *c, struct vm *vm, const struct tree_dead *d,
                           uint64_t used, uint64_t *silent)
{
        /* their slabs have bits: leave.h, [L] */
        const uint64_t leaving = atomic_load(&((struct tree_common *)c->tree->units)->leaving);
        char why[FAR_WHY];
        bool all = true;

        *silent = 0;
        pthread_mutex_lock(c->lease_lock);
        io_start(vm, c->tree->pieces);
        pthread_mutex_unlock(c->lease_lock);
        io_wait_attached();
        for (unsigned i = 0; i < c->nnodes; i++) {
                struct far_node *n = c->nodes[i];
                if (n->driver->kind != SLAB_REMOTE || !n->fences)
                        continue;
                const bool copied = n->hands_back || leaving >> i & 1;
                /* Lost for this process: others may still reach it, and so may the dead. */
                int err = n->lost && copied
                                  ? -ENOLINK : n->driver->cut(n, d->range, d->n, CUT_MS, why);
                if (n->lost && copied)
                        memcpy(why, n->why, FAR_WHY);
                if (err)
                        info_("%s: dead processes cannot be cut off now: %s", n->option->origin,
                              why);
                if (!err || err == -ESTALE || !(used >> i & 1))
                        continue;
                if (copied)
                        *silent |= 1ull << i;
                else
                        all = false;
        }
        return all;
}

bool cut_dead(struct cutter *c, struct vm *vm)
{
        struct tree *t = c->tree;
        struct tree_dead d;
        uint64_t freed = 0, silent;

        if (pthread_mutex_trylock(&c->lock) != 0)
                return false;           /* another thread does it */
        if (now_ms() >= c->next) {
                tree_lock(t);
                tree_dead_locked(t, &d);
                uint64_t used = used_locked(t);
                tree_unlock(t);
                if (d.n && cut_everywhere(c, vm, &d, used, &silent)) {
                        tree_lock(t);
                        tree_cut_locked(t, &d, silent);
                        freed = tree_mend_locked(t);
                        tree_unlock(t);
                } else if (d.n) {
                        c->next = now_ms() + CUT_AGAIN_MS;
                }
        }
        pthread_mutex_unlock(&c->lock);
        return freed > 0;
}
