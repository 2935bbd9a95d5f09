/*
 * See slabs.h: how much the nodes can give, and this process's part in the tree to which the
 * sequence of slabs belongs.
 */
#include <errno.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "common/clock.h"
#include "common/size.h"
#include "far/copies.h"
#include "far/held.h"
#include "far/nodes.h"
#include "far/placement.h"
#include "far/sequence.h"
#include "far/slabs.h"

struct leases leases = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .inherited = -1,
        .cutter = { .tree = &leases.tree,
                    .lease_lock = &leases.lock,
                    .lock = PTHREAD_MUTEX_INITIALIZER },
};
/* This process in the tree that was inherited by execve, stored before the first lease. */
static struct tree_child inherited_child = { .life = -1 };

uint64_t slabs_pages(const struct far_node *n, uint32_t count)
{
        struct far_node trial = *n;

        for (trial.slabs = 0, trial.leased = 0; trial.slabs < count; trial.slabs++) {
                uint32_t got = placement_slab(&trial);
                if (!got)
                        break;
                trial.leased += got;
        }
        return trial.leased;
}

void slabs_init(struct far_node *const all[], unsigned n, uint64_t room)
{
        uint32_t names = SLABS_MAX;
        char a[32], b[32];

        leases.nodes = leases.cutter.nodes = all;
        leases.nnodes = leases.cutter.nnodes = n;
        if (room > FAR_WINDOW_END - FAR_WINDOW)
                room = FAR_WINDOW_END - FAR_WINDOW;
        room /= PAGE_SIZE;
        placement_sizes(opt.placement, leases.nodes, leases.nnodes);
        for (unsigned i = 0; i < leases.nnodes; i++) {
                struct far_node *node = leases.nodes[i];
                bool memory = node->driver->kind == SLAB_MEMORY;
                uint64_t had = node->pages;
                /* A slab's address is aligned to 2 MiB or to the granule: as much may be lost at
                 * the first and at the last slab of each node. */
                uint64_t lost = 2ull * (node->granule > 512 ? node->granule : 512);
                if (memory && node->pages > (room > lost ? room - lost : 0))
                        node->pages = room > lost ? room - lost : 0;
                node->pages = slabs_pages(node, names);
                names -= placement_count(node, node->pages, names);
                leases.max_slabs = SLABS_MAX - names;
                if (memory)
                        room -= room > node->pages + lost ? node->pages + lost : room;
                leases.memory_room = room;
                if (node->pages < had)
                        info_("%s: only %s of %s can be used: the guest-physical space of this CPU "
                              "(or the table of slabs) holds no more",
                              node->option->origin, size_text(node->pages * PAGE_SIZE, a),
                              size_text(had * PAGE_SIZE, b));
        }
}

uint64_t far_leased_pages(void)
{
        uint64_t sum = 0;

        /* Without the lock, which a lease holds while it waits for a node. */
        for (unsigned i = 0; i < leases.nnodes; i++)
                sum += __atomic_load_n(&leases.nodes[i]->leased, __ATOMIC_RELAXED);
        return sum;
}

/* As kern counts them (kern/far/slotmap.c).  tree_number is valid once there is a slab. */
uint64_t far_used_pages(void)
{
        const struct tree_process *p;

        if (__atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE) == 0)
                return 0;
        p = &TREE_COMMON->process[CONTROL->tree_number];
        return atomic_load_explicit(&p->owned, memory_order_relaxed) +
               atomic_load_explicit(&p->shared, memory_order_relaxed);
}

void slabs_pull(void)
{
        for (unsigned i = 0; i < leases.nnodes; i++) {
                const struct tree_node *n = &leases.tree.head->node[i];
                leases.nodes[i]->pages = n->pages;
                leases.nodes[i]->leased = n->leased;
                leases.nodes[i]->slabs = n->slabs;
                leases.nodes[i]->slab_most = n->slab_most;
        }
}

void slabs_push(void)
{
        for (unsigned i = 0; i < leases.nnodes; i++) {
                struct tree_node *n = &leases.tree.head->node[i];
                n->pages = leases.nodes[i]->pages;
                n->leased = leases.nodes[i]->leased;
                n->slabs = leases.nodes[i]->slabs;
                n->slab_most = leases.nodes[i]->slab_most;
        }
}

void slabs_is_member(void)
{
        uint64_t drained = 0;

        for (unsigned i = 0; i < leases.nnodes; i++) {
                leases.nodes[i]->member = leases.tree.head->record[leases.tree.self].birth;
                drained |= is_set(&leases.nodes[i]->is_drained) ? 1ull << i : 0;
        }
        /* This process never used nodes that were drained for the process before it. */
        atomic_store(&slabs_common()->process[leases.tree.self].drained, drained);
}

/* If a limit of address space or file size forbids room for nodes that are added, without it. */
static int make_tree(char *why, size_t n)
{
        uint32_t all = leases.max_slabs < SLABS_MAX - SLABS_TO_ADD ? leases.max_slabs + SLABS_TO_ADD
                                                                : SLABS_MAX;
        int err = tree_make(&leases.tree, all, (void *)TREE_WINDOW, why, n);

        if (err == -ENOMEM || err == -EFBIG)
                err = tree_make(&leases.tree, leases.max_slabs, (void *)TREE_WINDOW, why, n);
        return err;
}

int slabs_start(void)
{
        char why[256];

        if (leases.in_tree)
                return 0;
        bool join = leases.inherited >= 0;
        int err = join ? tree_attach(&leases.tree, leases.inherited, (void *)TREE_WINDOW, why,
                                     sizeof(why))
                       : make_tree(why, sizeof(why));
        if (err) {
                warnx_("far memory: %s", why);
                return err;
        }
        if (inherited_child.life >= 0)
                tree_be_child(&leases.tree, &inherited_child);
        else
                err = tree_join(&leases.tree);
        if (err) {
                warnx_("far memory: the slots cannot be locked: %s", strerror(-err));
                tree_close(&leases.tree);
                return err;
        }
        slabs_is_member();
        if (!join) {
                leases.tree.head->nnodes = leases.nnodes;
                slabs_push();
        }
        leases.in_tree = true;
        held_in(&leases.tree);
        return 0;
}

int slabs_tree_fd(bool *alone)
{
        if (alone) {
                pthread_mutex_lock(&leases.lock);
                *alone = leases.inherited < 0;  /* if it never joined: unknown */
                if (leases.in_tree)
                        *alone = tree_alone(&leases.tree);
                pthread_mutex_unlock(&leases.lock);
        }
        return leases.in_tree ? leases.tree.fd : leases.inherited;
}

struct tree_child slabs_successor(void)
{
        struct tree_child c = { .life = -1 };

        if (slabs_tree())
                tree_child(&leases.tree, &c);
        return c;
}

int slabs_expect(void) { return slabs_tree() ? tree_expect(&leases.tree) : -ENOMEM; }

struct tree_child slabs_expected(int number)
{
        return number < 0 ? (struct tree_child){ .life = -1 } : tree_expected(&leases.tree, number);
}

void slabs_expect_end(int number)
{
        if (number >= 0)
                tree_expect_end(&leases.tree, number);
}

void slabs_leaves(bool leaves)
{
        if (leases.in_tree)
                tree_leaves(&leases.tree, leaves);
}

/* Slots of the old program in the tree are buried like those of any dead process. */
void slabs_adopt(int fd, const struct tree_child *next)
{
        leases.inherited = fd;
        inherited_child = *next;
}

/* --- slots of this process, by node --- */

static uint64_t held_in_chunk(uint32_t slab, uint32_t chunk)
{
        const slot_word_t *word = tree_map(leases.tree.units, slab)->word + chunk * CHUNK_PAGES;
        uint16_t mine = (uint16_t)(SLOT_OWNED | leases.tree.self);
        uint64_t n = tree_shared_in(&leases.tree, slab, chunk);

        for (uint32_t i = 0; i < CHUNK_PAGES; i++)
                n += (atomic_load_explicit(&word[i], memory_order_relaxed) & ~SLOT_DUE) == mine;
        return n;
}

static void add_held(uint64_t used[NODES_MAX], uint32_t slab, uint64_t held)
{
        const struct far_slab *s = far_slab(slab);

        for (unsigned k = 0; k < s->places; k++)
                used[s->place[k].node->index] += held;
}

void slabs_used(uint64_t used[NODES_MAX])
{
        uint32_t n = __atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE);

        memset(used, 0, NODES_MAX * sizeof(*used));
        for (uint32_t slab = 0; slab < n; slab++) {
                struct slab_map *map = tree_map(leases.tree.units, slab);
                for (uint32_t chunk = 0; chunk < SLAB_CHUNKS; chunk++)
                        if (chunk_touched(map, leases.tree.self, chunk))
                                add_held(used, slab, held_in_chunk(slab, chunk));
        }
}

void slabs_lacking(uint64_t lacking[NODES_MAX])
{
        const struct copies c = copies();
        uint32_t n = __atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE);

        memset(lacking, 0, NODES_MAX * sizeof(*lacking));
        for (uint32_t i = 0; i < n; i++) {
                const struct slab *s = &CONTROL->slabs[i];
                const struct far_slab *f = far_slab(i);
                unsigned places = s->kind == SLAB_REMOTE ? atomic_load(&f->places) : 0;
                for (unsigned k = 0; k < places; k++)
                        lacking[f->place[k].node->index] +=
                                copies_lacking(&c, f, i, s->pages, k);
        }
}

uint64_t slabs_at(const struct far_node *n, uint64_t *left)
{
        const struct copies c = copies();
        const uint32_t slabs = __atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE);
        uint64_t pages = 0;
        uint32_t some;

        *left = 0;
        for (uint32_t i = 0; i < slabs; i++) {
                const struct slab *s = &CONTROL->slabs[i];
                const struct far_slab *f = far_slab(i);
                unsigned places = s->kind == SLAB_REMOTE ? atomic_load(&f->places) : 0;
                for (unsigned k = 0; k < places; k++)
                        if (f->place[k].node == n) {
                                pages += copies_at(&c, f, i, s->pages, k, &some);
                                *left += some;
                        }
        }
        return pages;
}

bool slabs_stop(unsigned limit_ms) { return lock_within(&leases.lock, limit_ms); }

struct tree *slabs_tree(void)
{
        pthread_mutex_lock(&leases.lock);
        int err = slabs_start();
        pthread_mutex_unlock(&leases.lock);
        return err ? NULL : &leases.tree;
}

/* slabs_stop() was called before.  A program after execve belongs to the inherited tree even if it
 * never leased. */
bool slabs_last(bool still, unsigned limit_ms)
{
        if (!leases.in_tree && leases.inherited >= 0 && slabs_start() != 0)
                return false;
        return !leases.in_tree || tree_leave(&leases.tree, still, limit_ms);
}

uint64_t slabs_own_member(void)
{
        return leases.in_tree ? leases.tree.head->record[leases.tree.self].birth : FAR_FIRST_MEMBER;
}
