/*
 * See placement.h.
 *
 * Slabs are small at first, so that a small program takes little, and double node by node.  If they
 * doubled over all nodes, sixteen nodes would get one slab of 16 MiB and fourteen of half a GiB to
 * a GiB, and the last node would give most.  While a slab fills, all write-backs go to its node.
 * So if there are several remote nodes, their slabs stop growing early: at the size with which all
 * capacity still fits into the table of slabs.  Nodes that are memory need no such spreading, and
 * each of their slabs costs one of KVM's memory slots.
 */
#include "far/placement.h"

static uint64_t left(const struct far_node *n) { return n->pages - n->leased; }

/* The size, in pages, of slab number `slab` of a node with `left` pages left. */
static uint32_t slab_pages(const struct far_node *n, uint32_t slab, uint64_t left)
{
        uint64_t most = n->slab_most ? n->slab_most : SLAB_LAST,
                 pages = slab < 16 ? (uint64_t)SLAB_FIRST << slab : most;

        if (pages > most)
                pages = most;
        if (n->granule)
                pages = (pages + n->granule - 1) / n->granule * n->granule;
        if (pages > left)
                pages = n->granule ? left / n->granule * n->granule : left;
        return (uint32_t)pages;
}

uint32_t placement_slab(const struct far_node *n)
{
        return slab_pages(n, n->slabs, left(n));
}

uint32_t placement_count(const struct far_node *n, uint64_t pages, uint32_t most)
{
        uint32_t count = 0, got;
        while (count < most && (got = slab_pages(n, count, pages)) != 0) {
                pages -= got;
                count++;
        }
        return count;
}

uint32_t placement_left(const struct far_node *n)
{
        uint64_t pages = left(n);
        uint32_t count = 0, got;

        while ((got = slab_pages(n, n->slabs + count, pages)) != 0) {
                pages -= got;
                count++;
        }
        return count;
}

/* Should a give before b, by weight?  The node whose share, with its next slab, would be smaller
 * gives first.  So leased bytes follow the weights at every moment, whatever the sizes of slabs,
 * and a node that gave nothing for a while only catches up to its share. */
static bool lighter(const struct far_node *a, const struct far_node *b)
{
        return (a->leased + placement_slab(a)) * b->option->weight <
               (b->leased + placement_slab(b)) * a->option->weight;
}

int placement_next(enum placement how, struct far_node *const nodes[], unsigned n)
{
        int best = -1;

        for (unsigned i = 0; i < n; i++) {
                if (nodes[i]->silent || !placement_slab(nodes[i]))
                        continue;
                if (best < 0)
                        best = (int)i;
                else if (how == PLACE_WEIGHTED && lighter(nodes[i], nodes[best]))
                        best = (int)i;
                else if (how == PLACE_FREE && left(nodes[i]) > left(nodes[best]))
                        best = (int)i;
        }
        return best;
}

void placement_sizes(enum placement how, struct far_node *const nodes[], unsigned n)
{
        uint64_t pages = 0;

        for (unsigned i = 0; i < n; i++)
                pages += nodes[i]->pages;
        for (unsigned i = 0; i < n; i++)
                nodes[i]->slab_most =
                        n > 1 && how != PLACE_LINEAR && nodes[i]->driver->kind == SLAB_REMOTE
                                ? placement_most(pages, n, SLABS_MAX)
                                : SLAB_LAST;
}

uint32_t placement_most(uint64_t pages, unsigned n, uint32_t names)
{
        uint32_t most = SLAB_FIRST;

        /* 8: those that are smaller, and the last */
        while (most < SLAB_LAST && pages / most + 8 * n > names)
                most *= 2;
        return most;
}
