/*
 * See slabs.h: where a slab is.  Its places are on distinct nodes; copies.h says which of them has
 * a page.
 */
#include <errno.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/clock.h"
#include "far/io.h"
#include "far/nodes.h"
#include "far/placement.h"
#include "far/slabs.h"

uint64_t slabs_down(void)
{
        uint64_t set = 0;

        for (unsigned i = 0; i < leases.nnodes; i++) {
                const struct far_node *n = leases.nodes[i];
                if (is_set(&n->is_drained) ||
                    (n->hands_back && io_is_attached() && !is_set(&n->up)))
                        set |= 1ull << i;
        }
        return set;
}

void place_add(struct far_slab *f)
{
        atomic_fetch_add_explicit(&f->places, 1, memory_order_release);
        /* Release: who sees the count sees the place. */
        atomic_fetch_add_explicit(&leases.places_added, 1, memory_order_release);
}

bool place_lease(struct vm *vm, struct far_node *n, uint32_t pages, struct slab *s,
                        struct far_slab *f)
{
        struct far_place *place = &f->place[f->places];

        *place = (struct far_place){ .node = n, .first = n->leased };
        int err = n->driver->lease(n, vm, n->leased, pages, s, place);

        if (err == -ESHUTDOWN) {
                info_("%s: the node is draining, so it gives nothing more", n->option->origin);
                n->silent = err;
        } else if ((err == -ENOLINK || err == -ETIMEDOUT) && n->hands_back && !n->lost) {
                info_("%s: the node does not answer, so it gives nothing now", n->option->origin);
        } else if (err == -ENOLINK || err == -ETIMEDOUT) {
                /* Other processes of the tree may reach the node. */
                n->silent = err;
        } else if (err) {
                warnx_("%s: no more space can be leased after %llu MiB (%s): the program has %llu "
                       "MiB less than it was told",
                       n->option->origin, (unsigned long long)(n->leased * PAGE_SIZE >> 20),
                       strerror(-err),
                       (unsigned long long)((n->pages - n->leased) * PAGE_SIZE >> 20));
                n->pages = n->leased;
        }
        if (err)
                return false;
        n->leased += pages;
        n->slabs++;
        return true;
}

int places_check(uint32_t i, unsigned count)
{
        static bool said;

        if (count >= opt.replicas)
                return 0;
        if (opt.replicas_required) {
                warnx_("far memory: only %u node%s left for %u copies of a page, so the program "
                       "gets no more: add nodes, or leave out --replicas-required",
                       count, count == 1 ? " is" : "s are", opt.replicas);
                return -ENOSPC;
        }
        if (!said)
                warnx_("far memory: from slab %u on, pages have %u cop%s, not %u: no other node "
                       "has room, or answers",
                       i, count, count == 1 ? "y" : "ies", opt.replicas);
        said = true;
        return 0;
}

/* A place, as all processes of the tree need to know it. */
static struct tree_place tree_place_of(const struct far_place *p)
{
        struct tree_place t = { .node = p->node->index, .first = p->first };

        memcpy(t.word, p->word, sizeof(t.word));
        return t;
}

void places_list(uint32_t i, const struct slab *s)
{
        struct tree_slab *t = &leases.tree.head->slab[i];
        const struct far_slab *f = far_slab(i);
        bool bits = opt.replicas > 1;

        *t = (struct tree_slab){ .kind = s->kind, .pages = s->pages, .places = f->places };
        for (unsigned k = 0; k < f->places; k++) {
                t->place[k] = tree_place_of(&f->place[k]);
                bits |= is_draining(f->place[k].node);   /* drain.h, [L] */
        }
        atomic_store(&tree_map(leases.tree.units, i)->places,
                     s->kind == SLAB_REMOTE && bits ? f->places : 0);
        /* From here on the list is valid, even if this process dies now (tree.c, mend_head). */
        __atomic_store_n(&leases.tree.head->nslabs, i + 1, __ATOMIC_RELEASE);
}

int place_use(struct vm *vm, uint32_t i, struct slab *s)
{
        struct far_slab *f = far_slab(i);
        const struct tree_place *p = &leases.tree.head->slab[i].place[f->places];

        if (p->node >= leases.nnodes)
                return -ENOLINK;        /* slabs_learn() has said why */
        struct far_node *n = leases.nodes[p->node];
        struct far_place *place = &f->place[f->places];

        *place = (struct far_place){ .node = n, .first = p->first };
        memcpy(place->word, p->word, sizeof(place->word));
        int err = n->driver->use ? n->driver->use(n, place, s->pages)
                                 : n->driver->lease(n, vm, p->first, s->pages, s, place);
        if (err && n->lost && places_have_bits(i))
                err = 0;                /* other nodes have the pages */
        if (err)
                return err;
        place_add(f);
        return 0;
}

/* ---- copies in place of lost ones ---- */

bool place_is_gone(const struct far_node *n, int64_t now)
{
        int64_t since = n->down_since;

        return n->lost || is_draining(n) || (since && now - since > opt.timeout_ms);
}

/* Nodes that can take no further copy of a slab: a set.  *live: how many copies the slab still has.
 * Pages of draining nodes are copied to nodes that fence only (repair.c). */
static uint64_t without_room(const struct far_slab *f, uint32_t pages, int64_t now, unsigned *live)
{
        uint64_t set = slabs_down() | slabs_draining();
        bool drains = false;

        for (unsigned k = 0; k < f->places; k++)
                drains |= is_draining(f->place[k].node);
        for (unsigned i = 0; i < leases.nnodes; i++)
                if (leases.nodes[i]->lost || leases.nodes[i]->driver->kind != SLAB_REMOTE ||
                    (drains && !leases.nodes[i]->fences) ||
                    leases.nodes[i]->pages - leases.nodes[i]->leased < pages)
                        set |= 1ull << i;
        *live = 0;
        for (unsigned k = 0; k < f->places; k++) {
                if (place_is_gone(f->place[k].node, now))
                        continue;
                ++*live;
                for (unsigned i = 0; i < leases.nnodes; i++)
                        if (placement_fail_together(f->place[k].node, leases.nodes[i]))
                                set |= 1ull << i;
        }
        return set;
}

/* A place is never given to another node: processes know places by their numbers.  If a slab is on
 * draining nodes only, drain.c says that these cannot be drained. */
static void say_worn_out(uint32_t i, unsigned live)
{
        static bool said;

        if (live && !said)
                warnx_("far memory: slab %u has been on %u nodes, as many as it can in its life: "
                       "its pages stay at %u cop%s, not %u; so may the pages of other slabs: "
                       "start the program again when you can",
                       i, FAR_PLACES, live, live == 1 ? "y" : "ies", opt.replicas);
        said |= live > 0;
}

bool place_add_copy(struct vm *vm, uint32_t i)
{
        struct far_slab *f = far_slab(i);
        struct tree_slab *t = &leases.tree.head->slab[i];
        struct slab s = { .kind = t->kind, .pages = t->pages };
        unsigned live, k = f->places;
        uint64_t without = without_room(f, s.pages, now_ms(), &live);
        int n;

        if (!places_have_bits(i) || live >= opt.replicas || k != t->places)
                return false;
        if (k == FAR_PLACES) {
                say_worn_out(i, live);
                return false;
        }
        if ((n = placement_next(opt.placement, leases.nodes, leases.nnodes, without)) < 0 ||
            !place_lease(vm, leases.nodes[n], s.pages, &s, f))
                return false;
        /* In this order: a process that sets a copy's bit knows the place, and by then all other
         * processes know that there is one (copies_written()). */
        t->place[k] = tree_place_of(&f->place[k]);
        atomic_store(&tree_map(leases.tree.units, i)->places, k + 1);
        atomic_store(&t->places, k + 1);
        place_add(f);
        return true;
}
