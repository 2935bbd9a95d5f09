/*
 * See slabs.h: what the nodes can give, and this process's part in the tree to which the sequence
 * of slabs belongs.
 */
#include <errno.h>
#include <string.h>
#include "base/message.h"
#include "common/clock.h"
#include "common/size.h"
#include "far/copies.h"
#include "far/nodes.h"
#include "far/placement.h"
#include "far/repair.h"
#include "far/sequence.h"
#include "far/slabs.h"
#include "vm/vm.h"

struct sequence seq = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .inherited = -1,
        .cutter = { .tree = &seq.tree, .lease_lock = &seq.lock, .lock = PTHREAD_MUTEX_INITIALIZER },
};
static struct tree_child successor = { .life = -1 };    /* of the tree that was inherited */

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

        seq.nodes = seq.cutter.nodes = all;
        seq.nnodes = seq.cutter.nnodes = n;
        if (room > FAR_WINDOW_END - FAR_WINDOW)
                room = FAR_WINDOW_END - FAR_WINDOW;
        room /= PAGE_SIZE;
        placement_sizes(opt.placement, seq.nodes, seq.nnodes);
        for (unsigned i = 0; i < seq.nnodes; i++) {
                struct far_node *node = seq.nodes[i];
                bool memory = node->driver->kind == SLAB_MEMORY;
                uint64_t had = node->pages;
                /* A slab's address is aligned to 2 MiB or to the granule: that much may be lost at
                 * the first and last slab of each node. */
                uint64_t lost = 2ull * (node->granule > 512 ? node->granule : 512);
                if (memory && node->pages > (room > lost ? room - lost : 0))
                        node->pages = room > lost ? room - lost : 0;
                node->pages = slabs_pages(node, names);
                names -= placement_count(node, node->pages, names);
                seq.max_slabs = SLABS_MAX - names;
                if (memory)
                        room -= room > node->pages + lost ? node->pages + lost : room;
                seq.memory_room = room;
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

        /* Without the lock, which is held while a node is asked for more. */
        for (unsigned i = 0; i < seq.nnodes; i++)
                sum += __atomic_load_n(&seq.nodes[i]->leased, __ATOMIC_RELAXED);
        return sum;
}

/* As kern counts them (kern/far/slotmap.c).  Its number is valid once there is a slab. */
uint64_t far_used_pages(void)
{
        const struct tree_common *c = (const struct tree_common *)TREE_WINDOW;
        const struct tree_process *p;

        if (__atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE) == 0)
                return 0;
        p = &c->process[CONTROL->tree_number];
        return atomic_load_explicit(&p->owned, memory_order_relaxed) +
               atomic_load_explicit(&p->shared, memory_order_relaxed);
}

void slabs_pull(void)
{
        for (unsigned i = 0; i < seq.nnodes; i++) {
                const struct tree_node *n = &seq.tree.head->node[i];
                seq.nodes[i]->pages = n->pages;
                seq.nodes[i]->leased = n->leased;
                seq.nodes[i]->slabs = n->slabs;
                seq.nodes[i]->slab_most = n->slab_most;
        }
}

void slabs_push(void)
{
        for (unsigned i = 0; i < seq.nnodes; i++) {
                struct tree_node *n = &seq.tree.head->node[i];
                n->pages = seq.nodes[i]->pages;
                n->leased = seq.nodes[i]->leased;
                n->slabs = seq.nodes[i]->slabs;
                n->slab_most = seq.nodes[i]->slab_most;
        }
}

void slabs_is_member(void)
{
        uint64_t left = 0;

        for (unsigned i = 0; i < seq.nnodes; i++) {
                seq.nodes[i]->member = seq.tree.head->record[seq.tree.self].birth;
                left |= is_set(&seq.nodes[i]->is_left) ? 1ull << i : 0;
        }
        /* What the process before this one has left, this one never used. */
        atomic_store(&slabs_common()->process[seq.tree.self].left, left);
}

/* Under a limit of address space or file size, without room for nodes that are added. */
static int make_tree(char *why, size_t n)
{
        uint32_t all = seq.max_slabs < SLABS_MAX - SLABS_TO_ADD ? seq.max_slabs + SLABS_TO_ADD
                                                                : SLABS_MAX;
        int err = tree_make(&seq.tree, all, (void *)TREE_WINDOW, why, n);

        return err == -ENOMEM || err == -EFBIG
                       ? tree_make(&seq.tree, seq.max_slabs, (void *)TREE_WINDOW, why, n) : err;
}

int slabs_start(void)
{
        char why[256];

        if (seq.in_tree)
                return 0;
        bool join = seq.inherited >= 0;
        int err = join ? tree_attach(&seq.tree, seq.inherited, (void *)TREE_WINDOW, why,
                                     sizeof(why))
                       : make_tree(why, sizeof(why));
        if (err) {
                warnx_("far memory: %s", why);
                return err;
        }
        if (successor.life >= 0)
                tree_be_child(&seq.tree, &successor);
        else
                err = tree_join(&seq.tree);
        if (err) {
                warnx_("far memory: the slots cannot be locked: %s", strerror(-err));
                tree_close(&seq.tree);
                return err;
        }
        slabs_is_member();
        if (!join) {
                seq.tree.head->nnodes = seq.nnodes;
                slabs_push();
        }
        seq.in_tree = true;
        repair_in(&seq.tree);
        return 0;
}

int slabs_tree_fd(bool *alone)
{
        if (alone) {
                pthread_mutex_lock(&seq.lock);
                *alone = seq.inherited < 0; /* if it never joined: unknown */
                if (seq.in_tree)
                        *alone = tree_alone(&seq.tree);
                pthread_mutex_unlock(&seq.lock);
        }
        return seq.in_tree ? seq.tree.fd : seq.inherited;
}

struct tree_child slabs_successor(void)
{
        struct tree_child c = { .life = -1 };

        if (slabs_tree())
                tree_child(&seq.tree, &c);
        return c;
}

int slabs_expect(void) { return slabs_tree() ? tree_expect(&seq.tree) : -ENOMEM; }

struct tree_child slabs_expected(int number)
{
        return number < 0 ? (struct tree_child){ .life = -1 } : tree_expected(&seq.tree, number);
}

void slabs_expect_end(int number)
{
        if (number >= 0)
                tree_expect_end(&seq.tree, number);
}

void slabs_leaves(bool leaves)
{
        if (seq.in_tree)
                tree_leaves(&seq.tree, leaves);
}

/* What the old program held in the tree is buried like that of any dead process. */
void slabs_adopt(int fd, const struct tree_child *next)
{
        seq.inherited = fd;
        successor = *next;
}

/* --- what is used of each node --- */

static uint64_t held_in_chunk(uint32_t slab, uint32_t chunk)
{
        const slot_word_t *word = tree_map(seq.tree.units, slab)->word + chunk * CHUNK_PAGES;
        uint16_t mine = (uint16_t)(SLOT_OWNED | seq.tree.self);
        uint64_t n = tree_shared_in(&seq.tree, slab, chunk);

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
        for (uint32_t slab = 0; slab < n; slab++)
                for (uint32_t chunk = 0; chunk < SLAB_CHUNKS; chunk++)
                        if (chunk_touched(tree_map(seq.tree.units, slab), seq.tree.self, chunk))
                                add_held(used, slab, held_in_chunk(slab, chunk));
}

void slabs_lacking(uint64_t lacking[NODES_MAX])
{
        const struct copies c = { .units = (char *)TREE_WINDOW, .self = CONTROL->tree_number };
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

bool slabs_stop(unsigned limit_ms) { return lock_within(&seq.lock, limit_ms); }

struct tree *slabs_tree(void)
{
        pthread_mutex_lock(&seq.lock);
        int err = slabs_start();
        pthread_mutex_unlock(&seq.lock);
        return err ? NULL : &seq.tree;
}

/* slabs_stop() was called before.  A program after execve belongs to the inherited tree even if it
 * never leased. */
bool slabs_last(bool still, unsigned limit_ms)
{
        if (!seq.in_tree && seq.inherited >= 0 && slabs_start() != 0)
                return false;
        return !seq.in_tree || tree_leave(&seq.tree, still, limit_ms);
}

uint64_t slabs_own_member(void)
{
        return seq.in_tree ? seq.tree.head->record[seq.tree.self].birth : FAR_FIRST_MEMBER;
}
