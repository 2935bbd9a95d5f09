/*
 * A process of a tree, as the tests of the shared slots have it: it takes slots, releases them,
 * writes to them and checks what it wrote, on a real memory file. The content of every slot is in
 * memory that all share, so a slot handed out twice or freed under a reader shows.
 *
 * For one file of each test program; cmocka.h and what it needs come first.
 */
#ifndef TEST_TREE_ACTOR_H
#define TEST_TREE_ACTOR_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "far/memfd.h"
#include "far/tree.h"
#include "pager/pager.h"
#include "far/slotmap.h"

#define SLABS 3
#define PAGES 1300                      /* of each: two chunks and a half */
#define SLOTS (SLABS * PAGES)
#define HELD  1000                      /* by one process */

/* The content of the slots: each write has its own, so that writers can be told apart. */
struct world {
        _Atomic uint64_t content[SLOTS];
        _Atomic uint64_t stamp;
        _Atomic uint64_t takes, releases, forks, failures;
        char text[200];
};
static struct world *world;
static int world_fd;
static struct slab slabs[SLABS];

static inline unsigned index_of(uint64_t slot) { return slot_slab(slot) * PAGES + slot_page(slot); }

_Noreturn void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        _exit(status);
}

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        atomic_fetch_add(&world->failures, 1);
        snprintf(world->text, sizeof(world->text), "env_bug: %s: %#lx %#lx", what, (unsigned long)a,
                 (unsigned long)b);
        _exit(3);
}

/* ---- one process, or one thread ---- */

struct actor {
        struct tree tree;
        struct slotmap map;
        unsigned n;
        uint64_t slot[HELD], expect[HELD];
        uint64_t random;
};

static inline uint32_t rnd(struct actor *a, uint32_t n)
{
        a->random ^= a->random >> 12;
        a->random ^= a->random << 25;
        a->random ^= a->random >> 27;
        return (uint32_t)((a->random * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

static inline void wrong(struct actor *a, const char *what, uint64_t slot, uint64_t is,
                         uint64_t expect)
{
        if (atomic_fetch_add(&world->failures, 1) == 0)
                snprintf(world->text, sizeof(world->text),
                         "process %u: slot %#lx %s: %#lx, not %#lx", a->map.self,
                         (unsigned long)slot, what, (unsigned long)is, (unsigned long)expect);
}

/* Relaxed: the order comes from the code under test alone. */
static inline void check(struct actor *a, unsigned i)
{
        uint64_t is =
                atomic_load_explicit(&world->content[index_of(a->slot[i])], memory_order_relaxed);
        if (is != a->expect[i])
                wrong(a, "changed under its holder", a->slot[i], is, a->expect[i]);
}

static inline void write_slot(struct actor *a, unsigned i)
{
        a->expect[i] = atomic_fetch_add_explicit(&world->stamp, 1, memory_order_relaxed) << 10 |
                       a->map.self;
        atomic_store_explicit(&world->content[index_of(a->slot[i])], a->expect[i],
                              memory_order_relaxed);
}

static inline void take(struct actor *a)
{
        if (a->n == HELD)
                return;
        uint64_t slot = slotmap_take(&a->map, rnd(a, 4) == 0);
        if (slot == SLOT_NONE)
                return;
        atomic_fetch_add(&world->takes, 1);
        a->slot[a->n] = slot;
        write_slot(a, a->n++);
}

static inline void let_go(struct actor *a, unsigned i)
{
        uint64_t slot = a->slot[i];
        check(a, i);
        a->n--;
        a->slot[i] = a->slot[a->n];
        a->expect[i] = a->expect[a->n];
        if (slotmap_put(&a->map, slot))
                return;
        atomic_fetch_add(&world->releases, 1);
        if (tree_release(&a->tree, &slot, 1) != 0)
                wrong(a, "cannot be let go of", slot, 0, 0);
}

static inline void step(struct actor *a)
{
        unsigned i = a->n ? rnd(a, a->n) : 0;

        switch (rnd(a, 8)) {
        case 0: case 1: case 2: case 3:
                take(a);
                break;
        case 4: case 5:
                if (a->n)
                        let_go(a, i);
                break;
        case 6:
                if (a->n)
                        check(a, i);
                break;
        case 7:
                if (a->n && slotmap_writable(&a->map, a->slot[i])) {
                        write_slot(a, i);
                } else if (a->n && a->n < HELD) {       /* written back elsewhere */
                        take(a);
                        let_go(a, i);
                }
        }
}

static inline void start(struct actor *a, uint64_t seed)
{
        slotmap_init(&a->map, a->tree.units, slabs, a->tree.self);
        a->map.nslabs = SLABS;
        a->random = seed * 0x9e3779b97f4a7c15ull | 1;
}

/* On a busy machine even little may take several turns. */
static inline uint64_t mend_all_locked(struct tree *t)
{
        uint64_t freed = 0;

        do
                freed += tree_mend_locked(t);
        while (tree_unburied_locked(t));
        return freed;
}

static inline void mend(struct tree *t)
{
        tree_lock(t);
        mend_all_locked(t);
        tree_unlock(t);
}

static inline uint64_t number(const char *name, uint64_t otherwise)
{
        const char *text = getenv(name);
        return text ? strtoull(text, NULL, 0) : otherwise;
}

static inline void begin(struct actor *a)
{
        char why[256];

        memset(world, 0, sizeof(*world));
        if (tree_make(&a->tree, SLABS, NULL, why, sizeof(why)) != 0)
                fail_msg("%s", why);
        a->tree.head->nnodes = 1;
        for (uint32_t i = 0; i < SLABS; i++) {
                slabs[i] = (struct slab){ .kind = SLAB_MEMORY, .pages = PAGES };
                a->tree.head->slab[i] = (struct tree_slab){
                        .kind = SLAB_MEMORY, .pages = PAGES, .places = 1
                };
        }
        a->tree.head->nslabs = SLABS;
        assert_int_equal(tree_join(&a->tree), 0);
        start(a, number("SEED", 1));
}

/* How many slots have this word. */
static inline unsigned words(struct actor *a, uint16_t word)
{
        unsigned n = 0;

        for (uint32_t i = 0; i < SLABS; i++)
                for (uint32_t p = 0; p < PAGES; p++)
                        n += tree_map(a->tree.units, i)->word[p] == word;
        return n;
}

/* No other process is left: every slot that is not ours is free, and so are the records. */
static inline void count_all(struct actor *a)
{
        assert_true(tree_alone(&a->tree));
        while (a->n)
                let_go(a, 0);
        if (world->failures)
                fail_msg("%s (and %lu more)", world->text, (unsigned long)world->failures - 1);
        for (uint32_t i = 0; i < SLABS; i++)
                for (uint32_t p = 0; p < PAGES; p++)
                        if (tree_map(a->tree.units, i)->word[p] != SLOT_FREE)
                                fail_msg("slot %u of slab %u leaked: word %#x", p, i,
                                         tree_map(a->tree.units, i)->word[p]);
        for (unsigned n = 0; n < SLOTS; n++)
                assert_true(slotmap_take(&a->map, true) != SLOT_NONE);
        assert_true(slotmap_take(&a->map, true) == SLOT_NONE);
        assert_int_equal(slotmap_held(&a->map), SLOTS);
        assert_int_equal(slotmap_in_use(&a->map), SLOTS);
}

static inline int setup(void **state)
{
        (void)state;
        memfd_init(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
        world_fd = memfd_create("world", 0);
        if (world_fd < 0 || ftruncate(world_fd, sizeof(*world)) != 0)
                return -1;
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
        return world == MAP_FAILED ? -1 : 0;
}

#endif
