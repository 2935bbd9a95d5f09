/*
 * See copies_model.h.  Owners of slots, the processes that live, and how dead ones are cut off and
 * buried, are the real sources of kern and runtime.  The file of the tree, its lock, and the
 * kernel's locks of bytes are modelled.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "copies_hooks.h"

#include "far/slotmap.c"
#include "far/tree_hold.c"
#include "far/tree_life.c"
#include "far/cut.c"
#include "tree_files.h"

struct tree_head *head;
char *units;
_Atomic uint64_t *bits;
struct slab slabs[SLABS];
struct life *tree_owner;
bool tree_torn;

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        sched_fail("env_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        abort();
}

/* As mend_head() in far/tree.c: the lock is robust.  Only what is in the model. */
static void mend(void)
{
        for (uint32_t i = 0; tree_torn && i < head->nslabs; i++) {
                uint32_t *with_bits = (uint32_t *)&tree_map(units, i)->places;
                if (*with_bits > *(uint32_t *)&head->slab[i].places)
                        *with_bits = *(uint32_t *)&head->slab[i].places;
        }
        tree_torn = false;
}

static bool tree_is_free(void *arg) { (void)arg; return !tree_owner; }

void tree_lock(struct tree *t)
{
        (void)t;
        crash_point();
        while (tree_owner)
                wait_until(tree_is_free, NULL);
        tree_owner = running;
        mend();
}

void tree_unlock(struct tree *t)
{
        (void)t;
        tree_owner = NULL;
        crash_point();
}

void tree_yield(struct tree *t)
{
        tree_unlock(t);
        tree_lock(t);
}

bool tree_lock_within(struct tree *t, unsigned limit_ms)
{
        (void)limit_ms;
        if (tree_owner && chance(8))
                return false;
        tree_lock(t);
        return true;
}

static uint64_t *own_files(void) { return &self()->files; }
static uint64_t all_files(void)
{
        uint64_t all = 0;

        for (const struct seat *s = seats; s < seats + SEATS; s++)
                all |= s->files;
        return all;
}

void io_start(struct vm *vm, struct slot_pieces *pieces)
{
        (void)vm;
        (void)pieces;
}

void io_wait_attached(void) { crash_point(); }

static void make(void)
{
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

        head = calloc(1, sizeof(*head));
        units = mmap(NULL, (1 + SLABS) * SLAB_MAP_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
        bits = mmap(NULL, SLABS * SLAB_BITS_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (!head || units == MAP_FAILED || bits == MAP_FAILED)
                abort();
        for (uint32_t i = 0; i < SLABS; i++)
                slabs[i] = (struct slab){ .kind = SLAB_REMOTE, .pages = PAGES };
}

/* Draws the nodes of a slab, and their order. */
static void place_slab(struct tree_slab *s, unsigned replicas)
{
        unsigned first = rnd(NODES), step = 1 + rnd(NODES - 1);

        memset(s, 0, sizeof(*s));
        s->kind = SLAB_REMOTE;
        s->pages = PAGES;
        *(uint32_t *)&s->places = replicas;
        for (unsigned k = 0; k < replicas; k++)
                s->place[k].node = (first + k * step) % NODES;
}

void tree_reset(unsigned replicas)
{
        if (!head)
                make();
        for (uint32_t i = 0; i < SLABS; i++) {
                struct slab_map *map = tree_map(units, i);
                memset((void *)map->word, 0, PAGES * sizeof(map->word[0]));
                memset((void *)map->chunk, 0, sizeof(map->chunk));
                memset((void *)map->touched, 0, NUMBERS * sizeof(map->touched[0]));
                for (unsigned k = 0; k < SLAB_PLACES; k++)
                        *(uint64_t *)&map->good[k][0] = 0;
                *(uint32_t *)&map->places = replicas > 1 ? replicas : 0;
                for (uint32_t p = 0; p < NUMBERS; p++)
                        *(uint64_t *)&bits[(i * TREE_PROCESSES + p) * (SLAB_PAGES / 64)] = 0;
                place_slab(&head->slab[i], replicas);
        }
        memset(units, 0, sizeof(struct tree_common));
        memset(head->untold, 0, sizeof(head->untold));
        head->silences = 0;
        memset(head->record, 0, NUMBERS * sizeof(head->record[0]));
        head->births = head->told = 0;
        head->nslabs = SLABS;
        tree_owner = NULL, tree_torn = false;
        memset(locks, 0, sizeof(locks));
}
