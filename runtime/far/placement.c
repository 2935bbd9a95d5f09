/*
 * The node of the next slab, and the size of the slab.  See placement.h.
 *
 * A node gives nothing while a node of a higher priority has pages left.  The rest is between nodes
 * of one priority.
 *
 * Slabs are small at first, so that a small program takes little, and double node by node.  If they
 * doubled over all nodes, sixteen nodes would get one slab of 16 MiB and fourteen of half a GiB to
 * a GiB, and the last node would give most.  While a slab fills, all write-backs go to its node.
 * So if there are several remote nodes, their slabs stop growing early: at the size with which all
 * capacity still fits into the table of slabs.  Nodes that are memory need no such spreading, and
 * each of their slabs costs one of KVM's memory slots.
 */
#include <string.h>
#include "far/placement.h"

static uint64_t pages_left(const struct far_node *n) { return n->pages - n->leased; }

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
        return slab_pages(n, n->slabs, pages_left(n));
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
        uint64_t pages = pages_left(n);
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

static bool comes_before(enum placement how, const struct far_node *a, const struct far_node *b)
{
        if (a->option->priority != b->option->priority)
                return a->option->priority > b->option->priority;
        return (how == PLACE_WEIGHTED && lighter(a, b)) ||
               (how == PLACE_FREE && pages_left(a) > pages_left(b));
}

int placement_next(enum placement how, struct far_node *const nodes[], unsigned n, uint64_t without)
{
        int best = -1;

        for (unsigned i = 0; i < n; i++) {
                if (without >> i & 1 || nodes[i]->silent || !placement_slab(nodes[i]))
                        continue;
                if (best < 0 || comes_before(how, nodes[i], nodes[best]))
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

        /* 8: the smaller slabs of a node, and its last */
        while (most < SLAB_LAST && pages / most + 8 * n > names)
                most *= 2;
        return most;
}

static bool is_remote(const struct far_node *n) { return n->driver->kind == SLAB_REMOTE; }

bool placement_fail_together(const struct far_node *a, const struct far_node *b)
{
        return a == b || (a->option->domain && b->option->domain &&
                          strcmp(a->option->domain, b->option->domain) == 0);
}

unsigned placement_copies(enum placement how, struct far_node *const nodes[], unsigned n,
                          uint64_t without, unsigned replicas, unsigned index[REPLICAS_MAX],
                          uint32_t *pages)
{
        unsigned count = 0;
        int k;

        /* Further copies go where most pages are left: else the last pages are on too few nodes. */
        while (count < replicas &&
               (k = placement_next(count ? PLACE_FREE : how, nodes, n, without)) >= 0) {
                uint32_t got = placement_slab(nodes[k]);
                *pages = !count || got < *pages ? got : *pages;
                index[count++] = (unsigned)k;
                if (!is_remote(nodes[k]))
                        break;
                for (unsigned i = 0; i < n; i++)
                        if (!is_remote(nodes[i]) || placement_fail_together(nodes[i], nodes[k]))
                                without |= 1ull << i;
        }
        return count;
}

/* Pages of the remote nodes that fail together with node i, for the first of them; else 0. */
static uint64_t domain_pages(struct far_node *const nodes[], unsigned n, unsigned i)
{
        uint64_t pages = 0;

        for (unsigned k = 0; k < n; k++) {
                if (!is_remote(nodes[k]) || !placement_fail_together(nodes[i], nodes[k]))
                        continue;
                if (k < i)
                        return 0;
                pages += nodes[k]->pages;
        }
        return pages;
}

/* How many copies of that many pages all domains can hold, each page at most once a domain. */
static uint64_t copies_of(struct far_node *const nodes[], unsigned n, uint64_t pages)
{
        uint64_t sum = 0, has;

        for (unsigned i = 0; i < n; i++)
                if (is_remote(nodes[i]) && (has = domain_pages(nodes, n, i)) > 0)
                        sum += has < pages ? has : pages;
        return sum;
}

unsigned placement_domains(struct far_node *const nodes[], unsigned n)
{
        unsigned domains = 0;

        for (unsigned i = 0; i < n; i++)
                domains += is_remote(nodes[i]) && domain_pages(nodes, n, i) > 0;
        return domains;
}

uint64_t placement_room(struct far_node *const nodes[], unsigned n, unsigned replicas)
{
        uint64_t memory = 0, low = 0, high = 0;
        unsigned domains = placement_domains(nodes, n);

        for (unsigned i = 0; i < n; i++) {
                memory += is_remote(nodes[i]) ? 0 : nodes[i]->pages;
                high += is_remote(nodes[i]) ? nodes[i]->pages : 0;
        }
        if (replicas > domains)
                replicas = domains;
        while (low < high) {            /* the most pages with enough copies */
                uint64_t middle = low + (high - low + 1) / 2;
                if (copies_of(nodes, n, middle) >= replicas * middle)
                        low = middle;
                else
                        high = middle - 1;
        }
        return memory + low;
}
