/*
 * The copies of a page that are read and written (runtime/far/copies.h), step by step.
 * test_copies_model.c has processes and nodes that do as they like.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "far/copies.h"

#define UNITS 4                         /* what processes share, and the maps of three slabs */
#define SLOT  ((1ull << SLAB_SHIFT) + 63)       /* of slab 1: the last one of a word of bits */
#define SOLE  ((2ull << SLAB_SHIFT) + 63)       /* of slab 2, which has no bits */

static struct node_option option[3];
static struct far_node node[3];
static struct far_slab slab, single;
static struct copies me = { .self = 2 }, other = { .self = 5 };

static int setup(void **state)
{
        (void)state;
        char *units = mmap(NULL, UNITS * SLAB_MAP_SIZE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (units == MAP_FAILED)
                return -1;
        me.units = other.units = units;
        ((struct tree_common *)units)->numbers = 6;
        for (unsigned i = 0; i < 2; i++) {              /* all pages were written everywhere */
                tree_map(units, i)->places = 3;
                memset((void *)tree_map(units, i)->good, 0xff,
                       3 * sizeof(tree_map(units, i)->good[0]));
        }
        slab.places = 3;
        for (unsigned k = 0; k < 3; k++) {
                option[k] = (struct node_option){ .priority = 0 };
                node[k] = (struct far_node){
                        .option = &option[k], .index = 10 * k, .fences = true, .up = true
                };
                slab.place[k].node = &node[k];
        }
        single.places = 1;
        single.place[0].node = &node[0];
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        return munmap(me.units, UNITS * SLAB_MAP_SIZE);
}

static int read_of(uint64_t slot, unsigned not) { return copies_to_read(&me, &slab, slot, not); }

static void all_are_right(void **state)
{
        (void)state;
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
        assert_int_equal(copies_to_write(&me, &single, SOLE), 1);
        assert_int_equal(copies_to_read(&me, &single, SOLE, 0), 0);
        assert_false(copies_gone(&me, &slab, SLOT));
        assert_false(copies_all_lost(&me, &slab, SLOT));
}

/* Neighbours are read from one node, and chunks take turns. */
static void reads_are_shared(void **state)
{
        (void)state;
        for (uint64_t chunk = 0; chunk < 6; chunk++)
                for (unsigned page = 0; page < CHUNK_PAGES; page += 101)
                        assert_int_equal(read_of(chunk * CHUNK_PAGES + page, 0), chunk % 3);
        assert_int_equal(read_of(SLOT, 1), 1);
        assert_int_equal(read_of(SLOT, 3), 2);
        assert_int_equal(read_of(SLOT, 7), -1);
        assert_int_equal(read_of(CHUNK_PAGES, 2), 2);
        assert_int_equal(read_of(CHUNK_PAGES, 6), 0);
}

/* A disk beside two nodes of memory is read only if they do not have the page, or do not answer. */
static void reads_go_by_priority(void **state)
{
        (void)state;
        option[1].priority = option[2].priority = 5;
        for (uint64_t chunk = 0; chunk < 6; chunk++)
                for (unsigned page = 0; page < CHUNK_PAGES; page += 101)
                        assert_int_equal(read_of(chunk * CHUNK_PAGES + page, 0), 1 + chunk % 2);
        option[0].priority = 1000;
        assert_int_equal(read_of(2 * CHUNK_PAGES, 0), 0);
        assert_int_equal(read_of(2 * CHUNK_PAGES, 1), 1);
        assert_int_equal(read_of(3 * CHUNK_PAGES, 1), 2);
        node[0].up = false;
        node[1].up = false;
        assert_int_equal(read_of(2 * CHUNK_PAGES, 0), 2);
        option[0].priority = 1;
        node[0].up = true;
        copies_written(&me, 2 * CHUNK_PAGES, 1);        /* the others have missed it */
        assert_int_equal(read_of(2 * CHUNK_PAGES, 0), 0);
        assert_int_equal(copies_to_write(&me, &slab, 2 * CHUNK_PAGES), 5);
}

static void nodes_that_are_down(void **state)
{
        (void)state;
        node[0].up = false;
        assert_int_equal(read_of(SLOT, 0), 1);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 6);
        node[1].lost = true;
        assert_int_equal(read_of(SLOT, 0), 2);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 4);
        node[2].up = false;
        assert_int_equal(read_of(SLOT, 0), -1);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 0);
        /* they may answer again */
        assert_false(copies_gone(&me, &slab, SLOT));
        assert_false(copies_all_lost(&me, &slab, SLOT));
        node[2].lost = node[0].lost = true;
        assert_true(copies_gone(&me, &slab, SLOT));
        assert_true(copies_all_lost(&me, &slab, SLOT));
        assert_true(copies_gone(&me, &single, SOLE));
}

static void missed_writes(void **state)
{
        (void)state;
        copies_written(&me, SLOT, 4);
        assert_int_equal(read_of(SLOT, 0), 2);
        assert_int_equal(read_of(SLOT, 4), -1);
        /* of that slot, and for all processes */
        assert_int_equal(read_of(SLOT - 1, 0), 0);
        assert_int_equal(read_of(SLOT + 1, 0), 0);
        assert_int_equal(read_of(63, 0), 0);
        assert_int_equal(copies_to_read(&other, &slab, SLOT, 0), 2);
        /* they are written again, as nothing comes late */
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
        copies_written(&me, SLOT, 5);
        assert_int_equal(read_of(SLOT, 0), 0);
        assert_int_equal(read_of(SLOT, 1), 2);
        /* the last right one is down: it is waited for, unless it is lost */
        copies_written(&me, SLOT, 1);
        node[0].up = false;
        assert_int_equal(read_of(SLOT, 0), -1);
        assert_false(copies_gone(&me, &slab, SLOT));
        node[0].lost = true;
        assert_true(copies_gone(&me, &slab, SLOT));
        assert_false(copies_gone(&me, &slab, SLOT + 1));
        assert_false(copies_all_lost(&me, &slab, SLOT));
}

/* Another process has added a place and filled it, and this one has not looked since: it must not
 * give up before. */
static void places_not_known_yet(void **state)
{
        (void)state;
        slab.places = 2;
        node[0].lost = node[1].lost = true;
        assert_int_equal(read_of(SLOT, 0), -1);
        assert_false(copies_gone(&me, &slab, SLOT));
        assert_false(copies_all_lost(&me, &slab, SLOT));
        slab.places = 3;
        assert_int_equal(read_of(SLOT, 0), 2);
        node[2].lost = true;
        assert_true(copies_gone(&me, &slab, SLOT));
        assert_true(copies_all_lost(&me, &slab, SLOT));
}

/* One place has no bits, whatever others have left there. */
static void a_single_place(void **state)
{
        (void)state;
        copies_spoiled(&me, SOLE, 0);
        assert_int_equal(copies_to_read(&me, &single, SOLE, 0), 0);
        copies_unfenced(&other, &node[0]);
        assert_int_equal(copies_to_write(&me, &single, SOLE), 1);
        assert_false(copies_gone(&me, &single, SOLE));
        copies_written(&me, SOLE, 1);
        assert_int_equal(copies_to_read(&me, &single, SOLE, 0), 0);
        /* it gets a second one */
        memset((void *)tree_map(me.units, 2)->good[0], 0xff, SLAB_PAGES / 8);
        tree_map(me.units, 2)->places = 2;
        assert_int_equal(copies_to_read(&me, &single, SOLE, 0), 0);
        copies_fenced(&other, &node[0]);
        /* which has the page now, and this process does not know it yet */
        copies_repaired(&other, SOLE, 2);
        node[0].lost = true;
        assert_int_equal(copies_to_read(&me, &single, SOLE, 0), -1);
        assert_false(copies_gone(&me, &single, SOLE));
        /* nor does it give up what that place may get until then */
        assert_false(copies_gone(&me, &single, SOLE - 1));
        assert_false(copies_all_lost(&me, &single, SOLE - 1));
}

static void repairs(void **state)
{
        (void)state;
        assert_false(copies_wanting(&me, &slab, SLOT));
        assert_int_equal(copies_to_repair(&me, &slab, SLOT), 0);
        copies_written(&me, SLOT, 1);
        assert_true(copies_wanting(&me, &slab, SLOT));
        assert_false(copies_wanting(&me, &slab, SLOT + 1));
        assert_int_equal(copies_to_repair(&me, &slab, SLOT), 6);
        copies_unfenced(&other, &node[1]);
        assert_int_equal(copies_to_repair(&me, &slab, SLOT), 4);
        ((struct tree_common *)me.units)->uncut = 1ull << node[2].index;
        assert_int_equal(copies_to_repair(&me, &slab, SLOT), 0);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 1);
        assert_int_equal(copies_to_write(&me, &slab, SLOT + 1), 7);
        node[0].up = false;
        assert_false(copies_wanting(&me, &slab, SLOT));
        copies_repaired(&me, SLOT, 4);
        assert_int_equal(read_of(SLOT, 0), 2);
        assert_int_equal(read_of(SLOT, 4), -1);
        node[0].up = true;
        node[1].fences = false;
        assert_false(copies_wanting(&me, &slab, SLOT));
}

static uint32_t fewer(const struct far_slab *s, unsigned replicas)
{
        return copies_fewer(&me, s, s == &single ? 2 : 1, CHUNK_PAGES, replicas);
}

/* Copies at nodes that answer count, of slots that some process holds. */
static void fewer_copies(void **state)
{
        (void)state;
        assert_int_equal(fewer(&slab, 3), 0);
        *slot_word(me.units, SLOT) = SLOT_OWNED | 5;
        *slot_word(me.units, SLOT + 1) = SLOT_SHARED;
        assert_int_equal(fewer(&slab, 3), 0);
        copies_written(&other, SLOT, 2);
        copies_written(&other, SLOT + 1, 3);
        assert_int_equal(fewer(&slab, 3), 2);
        assert_int_equal(fewer(&slab, 2), 1);
        assert_int_equal(fewer(&slab, 1), 0);
        node[0].up = false;
        assert_int_equal(fewer(&slab, 2), 2);
        node[1].lost = true;
        assert_int_equal(fewer(&slab, 1), 2);
        node[0].up = true;
        node[1].lost = false;
        copies_repaired(&other, SLOT, 5);
        assert_int_equal(fewer(&slab, 2), 0);
        copies_unfit(&me, SLOT + 1);            /* it is in the cache */
        assert_int_equal(fewer(&slab, 3), 0);
        copies_written(&other, SLOT + 1, 0);    /* not written yet */
        assert_int_equal(fewer(&slab, 3), 0);
        /* Without bits there is one copy. */
        *slot_word(me.units, SOLE) = SLOT_OWNED | 5;
        assert_int_equal(fewer(&single, 1), 0);
        assert_int_equal(fewer(&single, 2), 1);
        node[0].up = false;
        assert_int_equal(fewer(&single, 1), 1);
}

static void at(const struct far_slab *s, unsigned k, uint32_t pages, uint32_t left)
{
        uint32_t alone;

        assert_int_equal(copies_at(&me, s, s == &single ? 2 : 1, CHUNK_PAGES, k, &alone), pages);
        assert_int_equal(alone, left);
}

/* Pages at a node that drains, and those of them that no node has that stays and answers. */
static void what_must_move(void **state)
{
        struct tree_common *t = (struct tree_common *)me.units;

        (void)state;
        *slot_word(me.units, SLOT) = SLOT_OWNED | 5;
        *slot_word(me.units, SLOT + 1) = SLOT_SHARED;
        copies_written(&other, SLOT, 1);
        copies_written(&other, SLOT + 1, 3);
        at(&slab, 0, 2, 1);                     /* it was asked, and that is not noted yet */
        t->draining = 1ull << node[0].index;
        at(&slab, 0, 2, 1);
        node[1].up = false;
        at(&slab, 0, 2, 2);
        node[1].up = true;
        copies_repaired(&other, SLOT, 4);
        at(&slab, 0, 2, 0);
        t->draining |= 1ull << node[2].index;
        at(&slab, 0, 2, 1);
        *slot_word(me.units, SLOT) = SLOT_FREE;
        at(&slab, 0, 1, 0);
        at(&slab, 2, 0, 0);
        t->draining = 0;
        /* Without bits all are at the one place, and nowhere else. */
        *slot_word(me.units, SOLE) = SLOT_OWNED | 5;
        at(&single, 0, 1, 1);
}

static bool any_wanting(const struct far_slab *s)
{
        return copies_any_wanting(&me, s, 1, CHUNK_PAGES);
}

static uint32_t lacking(const struct far_slab *s, unsigned k)
{
        return copies_lacking(&me, s, 1, CHUNK_PAGES, k);
}

/* Pages that a node missed, with any holder, and whether the node answers or not. */
static void what_a_node_lacks(void **state)
{
        slot_word_t *word = slot_word(me.units, SLOT);

        (void)state;
        assert_int_equal(lacking(&slab, 0) + lacking(&slab, 1) + lacking(&slab, 2), 0);
        *word = SLOT_OWNED | 5;
        *slot_word(me.units, SLOT + 1) = SLOT_SHARED;
        copies_written(&other, SLOT, 2);
        copies_written(&other, SLOT + 1, 3);
        assert_int_equal(lacking(&slab, 0), 1);
        assert_int_equal(lacking(&slab, 1), 0);
        assert_int_equal(lacking(&slab, 2), 2);
        node[2].up = false;
        assert_int_equal(lacking(&slab, 2), 2);
        node[2].up = true;
        *word = SLOT_FREE;
        assert_int_equal(lacking(&slab, 0), 0);
        assert_int_equal(lacking(&slab, 2), 1);
        assert_int_equal(copies_lacking(&me, &slab, 1, 64, 2), 0);
        copies_repaired(&other, SLOT + 1, 4);
        assert_int_equal(lacking(&slab, 2), 0);
        assert_int_equal(copies_lacking(&me, &single, 2, CHUNK_PAGES, 0), 0);
}

/* Copies of a slot are wanted while any process holds it. */
static void slots_of_all(void **state)
{
        static const struct { uint16_t word; bool copied; } words[] = {
                { SLOT_FREE, false }, { SLOT_DUE, false }, { SLOT_OWNED | 2, true },
                { SLOT_OWNED | 5, true }, { SLOT_SHARED, true }, { SLOT_CHECK | 5, true },
                { SLOT_OWNED | SLOT_DUE | 5, true },
        };
        slot_word_t *word = slot_word(me.units, SLOT);

        (void)state;
        assert_false(any_wanting(&slab));
        for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
                *word = words[i].word;
                copies_written(&other, SLOT, 1);
                assert_int_equal(any_wanting(&slab), words[i].copied);
                copies_repaired(&other, SLOT, 2);
                assert_int_equal(any_wanting(&slab), words[i].copied);
                copies_repaired(&other, SLOT, 4);
                assert_false(any_wanting(&slab));
        }
        /* Also copies of a DUE slot are wanted, until it has them.  With a node that does not fence
         * the slot stays DUE for good, and they are not wanted. */
        copies_written(&other, SLOT, 1);
        assert_true(any_wanting(&slab));
        node[2].fences = false;
        assert_false(any_wanting(&slab));
        *word = SLOT_OWNED | 5;
        assert_true(any_wanting(&slab));
        node[1].up = false;
        assert_false(any_wanting(&slab));
        node[1].up = node[2].fences = true;
        assert_false(copies_any_wanting(&me, &single, 2, CHUNK_PAGES));
        assert_true(copies_any_wanting(&me, &slab, 1, 64));
        /* of which none fits, until it is written */
        copies_unfit(&other, SLOT);
        assert_false(any_wanting(&slab));
        copies_written(&other, SLOT, 2);
        assert_true(any_wanting(&slab));
        copies_unfit(&other, SLOT);
        copies_repaired(&other, SLOT, 1);       /* after all */
        assert_true(any_wanting(&slab));
        copies_written(&other, SLOT, 7);
        assert_false(any_wanting(&slab));
        tree_map(me.units, 1)->places = 4;
        assert_true(any_wanting(&slab));        /* it is not known here */
}

/* A place that was added, and that this process does not know yet. */
static void unknown_places(void **state)
{
        struct far_slab wider = { .places = 4 };

        (void)state;
        memcpy(wider.place, slab.place, sizeof(wider.place));
        wider.place[3].node = &node[2];
        tree_map(me.units, 1)->places = 4;
        assert_int_equal(copies_to_read(&other, &wider, SLOT, 7), -1);
        copies_repaired(&other, SLOT, 8);
        assert_int_equal(copies_to_read(&other, &wider, SLOT, 7), 3);
        copies_written(&me, SLOT, 7);
        assert_int_equal(copies_to_read(&other, &wider, SLOT, 7), -1);
}

/* [C] */
static void threats(void **state)
{
        (void)state;
        copies_unfenced(&other, &node[1]);
        /* what it did not miss is right there, and written */
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
        copies_written(&other, SLOT, 5);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 5);
        assert_int_equal(copies_to_write(&other, &slab, SLOT), 5);
        assert_int_equal(copies_to_write(&me, &slab, SLOT + 1), 7);
        /* each process fences its own, each node apart */
        copies_unfenced(&me, &node[1]);
        copies_fenced(&other, &node[0]);
        copies_fenced(&other, &node[1]);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 5);
        copies_fenced(&me, &node[2]);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 5);
        copies_fenced(&me, &node[1]);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
        copies_fenced(&me, &node[1]);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
        /* a threat at one node is none at another */
        copies_unfenced(&me, &node[0]);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
}

/* Its slots are DUE instead. */
static void nodes_that_cannot_fence(void **state)
{
        (void)state;
        node[1].fences = false;
        copies_unfenced(&me, &node[1]);
        copies_written(&me, SLOT, 5);
        assert_int_equal(((struct tree_common *)me.units)->process[me.self].unfenced, 0);
        assert_int_equal(copies_to_write(&me, &slab, SLOT), 7);
}

/* The first and the last node, process, slot and place. */
static void ends(void **state)
{
        struct copies last = { .units = me.units, .self = TREE_PROCESSES - 1 };
        const uint64_t slot = 2 * SLAB_PAGES - 1;

        (void)state;
        ((struct tree_common *)me.units)->numbers = TREE_PROCESSES;
        node[2].index = NODES_MAX - 1;
        copies_unfenced(&last, &node[2]);
        copies_spoiled(&last, slot, 2);
        assert_int_equal(copies_to_write(&me, &slab, slot), 3);
        assert_int_equal(read_of(slot, 3), -1);
        copies_fenced(&last, &node[2]);
        assert_int_equal(copies_to_write(&me, &slab, slot), 7);
        copies_written(&last, slot, 7);
        assert_int_equal(read_of(slot, 3), 2);
}

#define test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                test(all_are_right), test(reads_are_shared), test(reads_go_by_priority),
                test(nodes_that_are_down), test(missed_writes), test(places_not_known_yet),
                test(a_single_place), test(threats), test(ends), test(nodes_that_cannot_fence),
                test(repairs), test(what_a_node_lacks), test(fewer_copies),
                test(what_must_move),
                test(slots_of_all), test(unknown_places),
        };
        return cmocka_run_group_tests_name("copies", tests, NULL, NULL);
}
