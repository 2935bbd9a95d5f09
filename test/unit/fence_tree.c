/*
 * See fence_process.h.  Owners of slots, the processes that live, and how dead ones are cut off and
 * buried, are the real sources of kern and runtime.  The file of the tree, its lock, and the
 * kernel's locks of bytes are modelled.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "fence_hooks.h"

/* A process that buries looks at each slot of a chunk, and for all chunks: these are enough. */
#include "far/slotmap.h"
#undef CHUNK_PAGES
#define CHUNK_PAGES 64u
#undef SLAB_CHUNKS
#define SLAB_CHUNKS 64u

#include "far/slotmap.c"
#include "far/tree_hold.c"
#include "far/tree_life.c"
#include "far/cut.c"
#include "fence_process.h"
#include "tree_files.h"

struct options opt = { .replicas = 1 };
struct tree_head *head;
char *units;
_Atomic uint64_t *bits;
struct slab slabs[SLABS];
pthread_mutex_t tree_mutex;

static struct seat *self(void) { return (struct seat *)running; }

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        sched_fail("env_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        abort();
}

void tree_lock(struct tree *t) { (void)t; model_lock(&tree_mutex); }
void tree_unlock(struct tree *t) { (void)t; model_unlock(&tree_mutex); }
void tree_yield(struct tree *t) { tree_unlock(t); tree_lock(t); }
static bool tree_is_free(void *arg) { (void)arg; return !*(struct life **)&tree_mutex; }
bool tree_lock_within(struct tree *t, unsigned limit_ms)
{
        (void)t;
        return wait_until_ms(tree_is_free, NULL, clock_ms + limit_ms) && model_trylock(&tree_mutex);
}

static uint64_t *own_files(void) { return &self()->p.files; }
static uint64_t all_files(void)
{
        uint64_t all = 0;

        for (const struct seat *s = seats; s < seats + SEATS; s++)
                all |= s->p.files;
        return all;
}

void io_start(struct vm *vm, struct slot_pieces *pieces)
{
        (void)pieces;
        (void)vm;
        self()->p.attached = true;
}
void io_wait_attached(void) { crash_point(); }

static int cut_node(struct far_node *n, const struct far_range *dead, unsigned count,
                    unsigned limit_ms, char why[FAR_WHY])
{
        int err = client_cut(&self()->p, n->index, dead, count, limit_ms);
        *why = '\0';
        return err;
}
const struct far_driver model_driver = { .kind = SLAB_REMOTE, .cut = cut_node };

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

void tree_reset(void)
{
        if (!head)
                make();
        for (uint32_t i = 0; i < SLABS; i++) {
                struct slab_map *map = tree_map(units, i);
                memset((void *)map->word, 0, PAGES * sizeof(map->word[0]));
                memset((void *)map->chunk, 0, sizeof(map->chunk));
                memset((void *)map->touched, 0, NUMBERS * sizeof(map->touched[0]));
                for (uint32_t p = 0; p < NUMBERS; p++)
                        *(uint64_t *)&bits[(i * TREE_PROCESSES + p) * (SLAB_PAGES / 64)] = 0;
        }
        memset(units, 0, sizeof(struct tree_common));
        memset(head->record, 0, NUMBERS * sizeof(head->record[0]));
        head->births = head->told = head->nslabs = 0;
        memset(&tree_mutex, 0, sizeof(tree_mutex));
        memset(locks, 0, sizeof(locks));
}
