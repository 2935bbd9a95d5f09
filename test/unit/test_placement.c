/*
 * Which node gives the next slab, and how large: that leased bytes follow the weights, that full
 * nodes are passed over, and that sizes spread the load.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "far/placement.h"

#define GIB (1ull << 30 >> 12)          /* pages */
#define MIB (1ull << 20 >> 12)
#define MAX 64

static const struct far_driver memory = { .scheme = "mem", .kind = SLAB_MEMORY };
static const struct far_driver remote = { .scheme = "rdma", .kind = SLAB_REMOTE };
static struct node_option options[MAX];
static struct far_node store[MAX], *nodes[MAX];

static void make(unsigned n, const struct far_driver *driver, uint64_t pages)
{
        memset(store, 0, sizeof(store));
        for (unsigned i = 0; i < n; i++) {
                options[i] = (struct node_option){ .weight = 1 };
                store[i] = (struct far_node){
                        .driver = driver, .option = &options[i], .pages = pages, .index = i
                };
                nodes[i] = &store[i];
        }
}

/* Leases one slab; its node, -1 at the end. */
static int step(enum placement how, unsigned n)
{
        int k = placement_next(how, nodes, n, 0);
        if (k >= 0) {
                uint32_t pages = placement_slab(nodes[k]);
                assert_in_range(pages, 1, 1u << SLAB_SHIFT);
                nodes[k]->leased += pages;
                nodes[k]->slabs++;
                assert_true(nodes[k]->leased <= nodes[k]->pages);
        }
        return k;
}

/* At every moment, no node is more than one slab ahead of another by weight. */
static void assert_shares(unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                for (unsigned k = 0; k < n; k++) {
                        const struct far_node *a = nodes[i], *b = nodes[k];
                        uint64_t slack =
                                b->slab_most > placement_slab(b) ? b->slab_most : placement_slab(b);
                        assert_true(a->leased * b->option->weight <=
                                    (b->leased + slack) * a->option->weight);
                }
}

static void weighted(void **state)
{
        static const unsigned weights[] = { 1, 2, 5, 1, 20 };
        (void)state;
        make(5, &remote, 20000 * GIB);
        for (unsigned i = 0; i < 5; i++)
                options[i].weight = weights[i];
        placement_sizes(PLACE_WEIGHTED, nodes, 5);
        for (unsigned i = 0; i < 20000; i++) {
                assert_true(step(PLACE_WEIGHTED, 5) >= 0);
                assert_shares(5);
        }
        double sum = 0, all = 0;
        for (unsigned i = 0; i < 5; i++) {
                sum += (double)nodes[i]->leased;
                all += weights[i];
        }
        for (unsigned i = 0; i < 5; i++) {
                double share = (double)nodes[i]->leased / sum / (weights[i] / all);
                assert_true(share > 0.95 && share < 1.05);
        }

        /* Equal weights: in turn. */
        make(3, &remote, 100 * GIB);
        placement_sizes(PLACE_WEIGHTED, nodes, 3);
        for (int i = 0; i < 30; i++)
                assert_int_equal(step(PLACE_WEIGHTED, 3), i % 3);

        /* The heavier one begins, and a mixture of slab sizes changes nothing of the shares. */
        make(2, &remote, 400 * GIB);
        nodes[0]->driver = &memory;
        options[1].weight = 3;
        placement_sizes(PLACE_WEIGHTED, nodes, 2);
        assert_true(nodes[1]->slab_most < nodes[0]->slab_most);
        assert_int_equal(step(PLACE_WEIGHTED, 2), 1);
        while (nodes[1]->leased < 300 * GIB)
                assert_true(step(PLACE_WEIGHTED, 2) >= 0);
        assert_in_range(nodes[0]->leased, 99 * GIB, 101 * GIB);
}

/* In the end every page of every node is leased, under each policy, also where a node gives less
 * than it said. */
static void to_the_end(void **state)
{
        static const enum placement policies[] = { PLACE_WEIGHTED, PLACE_LINEAR, PLACE_FREE };
        (void)state;
        for (unsigned p = 0; p < 3; p++) {
                make(4, &remote, 7 * GIB);
                /* less than the first slab */
                nodes[1]->pages = 5;
                nodes[2]->pages = 0;
                nodes[3]->pages = 20 * GIB + 3;
                options[3].weight = 9;
                placement_sizes(policies[p], nodes, 4);
                uint64_t sum = 0;
                int k;
                for (unsigned i = 0; (k = step(policies[p], 4)) >= 0; i++) {
                        assert_int_not_equal(k, 2);
                        if (i == 20)
                                /* what slabs.c does when a lease fails */
                                nodes[0]->pages = nodes[0]->leased;
                        if (i > 20)
                                assert_int_not_equal(k, 0);
                }
                for (unsigned i = 0; i < 4; i++) {
                        assert_int_equal(nodes[i]->leased, nodes[i]->pages);
                        sum += nodes[i]->leased;
                }
                assert_true(sum >= 20 * GIB + 8);
                assert_int_equal(placement_next(policies[p], nodes, 4, 0), -1);
        }
        assert_int_equal(placement_next(PLACE_WEIGHTED, nodes, 0, 0), -1);
}

static void linear(void **state)
{
        (void)state;
        make(3, &remote, 3 * GIB);
        options[2].weight = 100;
        placement_sizes(PLACE_LINEAR, nodes, 3);
        int last = 0, k;
        while ((k = step(PLACE_LINEAR, 3)) >= 0) {
                assert_in_range(k, last, last + 1);
                if (k > last)
                        assert_int_equal(nodes[last]->leased, nodes[last]->pages);
                last = k;
        }
        assert_int_equal(last, 2);
        /* 16M to 512M, two of 1G, the rest */
        assert_int_equal(nodes[0]->slabs, 6 + 3);
}

/* Nodes of a higher priority are emptied first, under each policy; those of one priority share as
 * if there were no others, also when one above them does not answer. */
static void by_priority(void **state)
{
        static const enum placement policies[] = { PLACE_WEIGHTED, PLACE_LINEAR, PLACE_FREE };
        (void)state;
        for (unsigned p = 0; p < 3; p++) {
                make(4, &remote, 5 * GIB);
                nodes[1]->pages = 9 * GIB;
                nodes[0]->driver = &memory;
                options[0].weight = 1000;
                options[2].priority = options[3].priority = 7;
                options[1].priority = 1000;
                placement_sizes(policies[p], nodes, 4);
                int k, was = 1;
                while ((k = step(policies[p], 4)) >= 0) {
                        assert_true(options[k].priority <= options[was].priority);
                        if (options[k].priority < 1000)
                                assert_int_equal(nodes[1]->leased, nodes[1]->pages);
                        if (k == 0)
                                assert_int_equal(nodes[2]->leased + nodes[3]->leased, 10 * GIB);
                        if (policies[p] == PLACE_WEIGHTED && options[k].priority == 7)
                                assert_in_range(nodes[2]->leased + nodes[2]->slab_most,
                                                nodes[3]->leased,
                                                nodes[3]->leased + 2 * nodes[2]->slab_most);
                        was = k;
                }
                assert_int_equal(was, 0);
        }
        make(3, &remote, GIB);
        options[1].priority = 1;
        nodes[1]->silent = -ETIMEDOUT;
        assert_int_equal(placement_next(PLACE_WEIGHTED, nodes, 3, 0), 0);
        nodes[1]->silent = 0;
        assert_int_equal(placement_next(PLACE_WEIGHTED, nodes, 3, 0), 1);
}

static void most_free(void **state)
{
        (void)state;
        make(3, &remote, 4 * GIB);
        nodes[1]->pages = 9 * GIB;
        options[0].weight = 50;
        placement_sizes(PLACE_FREE, nodes, 3);
        while (nodes[1]->pages - nodes[1]->leased > 4 * GIB)
                assert_int_equal(step(PLACE_FREE, 3), 1);
        while (step(PLACE_FREE, 3) >= 0) {
                uint64_t least = UINT64_MAX, most = 0;
                for (unsigned i = 0; i < 3; i++) {
                        uint64_t left = nodes[i]->pages - nodes[i]->leased;
                        least = left < least ? left : least;
                        most = left > most ? left : most;
                }
                assert_true(most - least <= nodes[0]->slab_most);
        }
}

/* Slabs grow node by node; many remote nodes keep them small, as long as the table of slabs holds
 * them all. */
static void sizes(void **state)
{
        (void)state;
        make(16, &remote, 64 * GIB);
        placement_sizes(PLACE_WEIGHTED, nodes, 16);
        for (int i = 0; i < 16; i++) {
                assert_int_equal(step(PLACE_WEIGHTED, 16), i);
                assert_int_equal(nodes[i]->leased, 16 * MIB);
        }
        uint32_t slabs = 0;
        for (unsigned i = 0; i < 16; i++) {
                /* 1 TiB in all: 4096 of 256 MiB, but for the small ones */
                assert_int_equal(nodes[i]->slab_most, 512 * MIB);
                nodes[i]->slabs = 0;
                nodes[i]->leased = 0;
                slabs += placement_count(nodes[i], nodes[i]->pages, SLABS_MAX);
        }
        assert_in_range(slabs, 1024, SLABS_MAX);

        make(4, &remote, 8 * GIB);
        placement_sizes(PLACE_WEIGHTED, nodes, 4);
        assert_int_equal(nodes[0]->slab_most, 16 * MIB);
        placement_sizes(PLACE_LINEAR, nodes, 4);
        assert_int_equal(nodes[0]->slab_most, 1 * GIB);
        placement_sizes(PLACE_FREE, nodes, 1);
        assert_int_equal(nodes[0]->slab_most, 1 * GIB);                 /* nothing to spread */
        make(4, &memory, 8 * GIB);
        placement_sizes(PLACE_WEIGHTED, nodes, 4);
        assert_int_equal(nodes[0]->slab_most, 1 * GIB);

        for (uint64_t gib = 1; gib <= 4096; gib *= 2)
                for (unsigned n = 1; n <= MAX; n *= 2) {
                        make(n, &remote, gib * GIB / n);
                        placement_sizes(PLACE_WEIGHTED, nodes, n);
                        slabs = 0;
                        for (unsigned i = 0; i < n; i++)
                                slabs += placement_count(nodes[i], nodes[i]->pages, SLABS_MAX + 1);
                        if (nodes[0]->slab_most < GIB)
                                assert_in_range(slabs, 1, SLABS_MAX);
                }
}

/* Huge pages: slabs begin and end at multiples of them. */
static void granules(void **state)
{
        static const uint32_t granule[] = { 512, 1 << 18 };
        (void)state;
        for (unsigned g = 0; g < 2; g++) {
                make(2, &memory, 5 * GIB + 700);
                placement_sizes(PLACE_WEIGHTED, nodes, 2);
                nodes[0]->granule = granule[g];
                int k;
                while ((k = step(PLACE_WEIGHTED, 2)) >= 0)
                        if (k == 0)
                                assert_int_equal(nodes[0]->leased % granule[g], 0);
                assert_int_equal(nodes[0]->leased, (5 * GIB + 700) / granule[g] * granule[g]);
                assert_int_equal(nodes[1]->leased, 5 * GIB + 700);
        }
}

/* Leases slabs, `replicas` of each, for as long as there are; how many pages they have. */
static uint64_t fill(enum placement how, unsigned n, unsigned replicas)
{
        unsigned index[FAR_PLACES];
        uint64_t all = 0;
        uint32_t pages;

        while (placement_copies(how, nodes, n, 0, replicas, index, &pages) == replicas) {
                for (unsigned k = 0; k < replicas; k++) {
                        nodes[index[k]]->leased += pages;
                        nodes[index[k]]->slabs++;
                        assert_true(nodes[index[k]]->leased <= nodes[index[k]]->pages);
                }
                all += pages;
        }
        return all;
}

static void domains(const char *const name[], unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                options[i].domain = name[i];
}

static void copies(void **state)
{
        static const char *const racks[] = { "a", "a", NULL, "b", NULL };
        unsigned at[FAR_PLACES];
        uint32_t pages;

        (void)state;
        make(5, &remote, GIB);
        domains(racks, 5);
        assert_int_equal(placement_domains(nodes, 5), 4);
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0, 3, at, &pages), 3);
        assert_true(at[0] == 0 && at[1] == 2 && at[2] == 3);
        assert_int_equal(pages, SLAB_FIRST);
        /* no other domain is left */
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 2, 0, 2, at, &pages), 1);
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0x1c, 2, at, &pages), 1);
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0x1f, 2, at, &pages), 0);
        /* as much as the least has */
        nodes[2]->leased = GIB - 5;
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 3, 0, 2, at, &pages), 2);
        assert_true(at[1] == 2 && pages == 5);
        /* copies go where most is left */
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0, 2, at, &pages), 2);
        assert_true(at[1] == 3 && pages == SLAB_FIRST);
        nodes[2]->leased = GIB;
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0, 3, at, &pages), 3);
        assert_true(at[0] == 0 && at[1] == 3 && at[2] == 4 && pages == SLAB_FIRST);
        /* silent ones are not asked */
        nodes[3]->silent = -1;
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0, 3, at, &pages), 2);
        /* memory has no copies, and is none */
        nodes[0]->driver = &memory;
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0, 2, at, &pages), 1);
        assert_int_equal(at[0], 0);
        nodes[0]->leased = GIB;
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 0, 2, at, &pages), 2);
        nodes[2]->driver = &memory;
        nodes[2]->leased = 0;
        assert_int_equal(placement_copies(PLACE_LINEAR, nodes, 5, 5, 3, at, &pages), 2);
        assert_true(at[0] == 1 && at[1] == 4);
}

static void room(void **state)
{
        static const char *const racks[] = { "a", "b", "a", "b" };

        (void)state;
        make(3, &remote, GIB);
        assert_int_equal(placement_room(nodes, 3, 1), 3 * GIB);
        assert_int_equal(placement_room(nodes, 3, 2), 3 * GIB / 2);
        assert_int_equal(placement_room(nodes, 3, 3), GIB);
        /* more copies than nodes: as many as there are */
        assert_int_equal(placement_room(nodes, 2, 3), GIB);
        assert_int_equal(placement_room(nodes, 1, 2), GIB);
        assert_int_equal(placement_room(nodes, 0, 2), 0);
        /* the others' room is the bound */
        nodes[0]->pages = 9 * GIB;
        assert_int_equal(placement_room(nodes, 3, 2), 2 * GIB);
        assert_int_equal(placement_room(nodes, 3, 3), GIB);
        nodes[0]->pages = 7;
        nodes[1]->pages = 5;
        assert_int_equal(placement_room(nodes, 3, 2), 12);
        assert_int_equal(placement_room(nodes, 3, 3), 5);
        /* memory has no copies */
        nodes[2]->driver = &memory;
        assert_int_equal(placement_room(nodes, 3, 2), GIB + 5);
        assert_int_equal(placement_domains(nodes, 3), 2);
        /* a rack has a page once */
        make(4, &remote, GIB);
        domains(racks, 4);
        assert_int_equal(placement_domains(nodes, 4), 2);
        assert_int_equal(placement_room(nodes, 4, 2), 2 * GIB);
        assert_int_equal(placement_room(nodes, 4, 3), 2 * GIB);
        nodes[3]->pages = 0;
        assert_int_equal(placement_room(nodes, 4, 2), GIB);
        nodes[1]->pages = 0;
        assert_int_equal(placement_domains(nodes, 4), 1);
        assert_int_equal(placement_room(nodes, 4, 2), 2 * GIB);
}

/* The promised room is there if the emptiest nodes give first.  Other orders may leave a node with
 * room that has no partner any more. */
static void room_is_there(void **state)
{
        static const uint64_t sizes[][4] = {
                { 4, 4, 4, 4 }, { 9, 1, 1, 1 }, { 1, 1, 2, 0 }, { 1, 2, 3, 4 }, { 7, 5, 5, 1 },
        };

        (void)state;
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) * 6; i++) {
                enum placement how = (enum placement)(i % 3);
                unsigned replicas = 2 + i / 3 % 2;
                make(4, &remote, 0);
                for (unsigned k = 0; k < 4; k++)
                        nodes[k]->pages = sizes[i / 6][k] * GIB;
                placement_sizes(how, nodes, 4);
                uint64_t promised = placement_room(nodes, 4, replicas),
                         least = how == PLACE_FREE ? promised - 16 * MIB : promised / 2;
                assert_in_range(fill(how, 4, replicas), least, promised);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(weighted), cmocka_unit_test(to_the_end),
                cmocka_unit_test(by_priority),
                cmocka_unit_test(linear),   cmocka_unit_test(most_free),
                cmocka_unit_test(sizes),    cmocka_unit_test(granules),
                cmocka_unit_test(copies),   cmocka_unit_test(room),
                cmocka_unit_test(room_is_there),
        };
        return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
