/*
 * The sequence of slabs: how each one is leased, and where it is.  Which node gives it is decided
 * in placement.c.
 *
 * The sequence belongs to the process tree (tree.h): a process first uses the slabs that others of
 * the tree have leased, and only then leases another.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/message.h"
#include "common/clock.h"
#include "common/size.h"
#include "far/cut.h"
#include "far/io.h"
#include "far/leave.h"
#include "far/placement.h"
#include "far/rebuild.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/timing.h"
#include "far/tree.h"
#include "far/window.h"
#include "vm/vm.h"

static struct far_node *const *nodes;
static _Atomic unsigned nnodes;         /* changes under lease_lock */
static uint32_t max_slabs;              /* the most slabs that the nodes of the start can give */
/* Pages of guest-physical space that no memory node of the start can take. */
static uint64_t memory_room;
/* The tree's file has room for so many slabs more, for nodes that are added: 3 GiB of addresses,
 * and next to no memory.  At least 30 GiB. */
#define SLABS_TO_ADD 64

/* Guards the data below, CONTROL->slabs and nslabs, and what every node has leased.  Taken before
 * the lock of the tree. */
static pthread_mutex_t lease_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tree tree;
/* there is a tree.  The first lease makes it, so a program that fits its cache has none. */
static bool in_tree;
/* across execve: the descriptor of the tree to join at the first lease */
static int inherited = -1;
static struct tree_child successor;     /* and the number that it has there */
/* of each step of TREE_WINDOW that is mapped in the VM: see map_unit() */
static uint64_t map_gpa[16];
static void (*then)(struct vm *vm);     /* slabs_then() */
static struct cutter cutter = {
        .tree = &tree, .lease_lock = &lease_lock, .lock = PTHREAD_MUTEX_INITIALIZER
};

static struct tree_common *common(void) { return (struct tree_common *)tree.units; }
static bool is(const _Atomic bool *flag) { return atomic_load_explicit(flag, memory_order_relaxed); }

/* The most pages, of at most n->pages, that `count` slabs can hold. */
static uint64_t pages_of(const struct far_node *n, uint32_t count)
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

        nodes = cutter.nodes = all;
        nnodes = cutter.nnodes = n;
        if (room > FAR_WINDOW_END - FAR_WINDOW)
                room = FAR_WINDOW_END - FAR_WINDOW;
        room /= PAGE_SIZE;
        placement_sizes(opt.placement, nodes, nnodes);
        for (unsigned i = 0; i < nnodes; i++) {
                struct far_node *node = nodes[i];
                bool memory = node->driver->kind == SLAB_MEMORY;
                uint64_t had = node->pages;
                /* A slab's address is aligned to 2 MiB or to the granule: that much may be lost at
                 * the first and last slab of each node. */
                uint64_t lost = 2ull * (node->granule > 512 ? node->granule : 512);
                if (memory && node->pages > (room > lost ? room - lost : 0))
                        node->pages = room > lost ? room - lost : 0;
                node->pages = pages_of(node, names);
                names -= placement_count(node, node->pages, names);
                max_slabs = SLABS_MAX - names;
                if (memory)
                        room -= room > node->pages + lost ? node->pages + lost : room;
                memory_room = room;
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
        for (unsigned i = 0; i < nnodes; i++)
                sum += __atomic_load_n(&nodes[i]->leased, __ATOMIC_RELAXED);
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

/* pull() copies what the nodes have given from the tree, push() to it. */
static void pull(void)
{
        for (unsigned i = 0; i < nnodes; i++) {
                const struct tree_node *n = &tree.head->node[i];
                nodes[i]->pages = n->pages;
                nodes[i]->leased = n->leased;
                nodes[i]->slabs = n->slabs;
                nodes[i]->slab_most = n->slab_most;
        }
}

static void push(void)
{
        for (unsigned i = 0; i < nnodes; i++) {
                struct tree_node *n = &tree.head->node[i];
                n->pages = nodes[i]->pages;
                n->leased = nodes[i]->leased;
                n->slabs = nodes[i]->slabs;
                n->slab_most = nodes[i]->slab_most;
        }
}

/* Nodes know this process by its birth.  The first process of a tree has connected before there is
 * a tree, as the member that it is now (far_node_open()). */
static void is_member(void)
{
        for (unsigned i = 0; i < nnodes; i++)
                nodes[i]->member = tree.head->record[tree.self].birth;
}

/* What the process before this one has left, this one never used. */
static void note_left(void)
{
        uint64_t left = 0;

        for (unsigned i = 0; i < nnodes; i++)
                left |= is(&nodes[i]->is_left) ? 1ull << i : 0;
        atomic_store(&common()->process[tree.self].left, left);
}

/* Under a limit of address space or file size, without room for nodes that are added. */
static int make_tree(char *why, size_t n)
{
        uint32_t all = max_slabs < SLABS_MAX - SLABS_TO_ADD ? max_slabs + SLABS_TO_ADD : SLABS_MAX;
        int err = tree_make(&tree, all, (void *)TREE_WINDOW, why, n);

        return err == -ENOMEM || err == -EFBIG
                       ? tree_make(&tree, max_slabs, (void *)TREE_WINDOW, why, n) : err;
}

/* With lease_lock held. */
static int start_tree(void)
{
        char why[256];

        if (in_tree)
                return 0;
        bool join = inherited >= 0;
        int err = join ? tree_attach(&tree, inherited, (void *)TREE_WINDOW, why, sizeof(why))
                       : make_tree(why, sizeof(why));
        if (err) {
                warnx_("far memory: %s", why);
                return err;
        }
        err = join && successor.birth ? tree_be_child(&tree, &successor) : -ESRCH;
        if (err)
                err = tree_join(&tree);
        if (err) {
                warnx_("far memory: the slots cannot be locked: %s", strerror(-err));
                tree_close(&tree);
                return err;
        }
        is_member();
        note_left();
        if (!join) {
                tree.head->nnodes = nnodes;
                push();
        }
        in_tree = true;
        repair_in(&tree);
        return 0;
}

int slabs_tree_fd(bool *alone)
{
        if (alone) {
                pthread_mutex_lock(&lease_lock);
                *alone = inherited < 0; /* if it never joined: unknown */
                if (in_tree) {
                        tree_lock(&tree);
                        tree_mend_locked(&tree);
                        *alone = tree_alone_locked(&tree);
                        tree_unlock(&tree);
                }
                pthread_mutex_unlock(&lease_lock);
        }
        return in_tree ? tree.fd : inherited;
}

struct tree_child slabs_expect(void)
{
        struct tree_child c = { 0 };

        if (slabs_tree())
                tree_child(&tree, &c);
        return c;
}

void slabs_expected(const struct tree_child *c)
{
        if (c->birth)
                tree_child_left(&tree, c);
}

void slabs_keep_expected(const struct tree_child *c)
{
        if (c->birth)
                tree_keep_child(&tree, c);
}

void slabs_leaves(bool leaves)
{
        if (in_tree)
                tree_leaves(&tree, leaves);
}

/* What the old program held in the tree is buried like that of any dead process. */
void slabs_adopt(int fd, const struct tree_child *next)
{
        inherited = fd;
        successor = *next;
        tree_adopt(fd, next);
}

static uint64_t own_member(void)
{
        return in_tree ? tree.head->record[tree.self].birth : FAR_FIRST_MEMBER;
}

/* With lease_lock held.  The next program has the node, too. */
static int append(struct far_node *n, char why[FAR_WHY])
{
        int err = io_add(n, why);

        if (err)
                return err;
        nnodes = far_nodes();
        cutter.nnodes = nnodes;
        opt.nodes[n->index] = *n->option;
        /* Release: as in far_add(). */
        __atomic_store_n(&opt.nnodes, nnodes, __ATOMIC_RELEASE);
        atomic_fetch_add_explicit(&CONTROL->nodes_added, 1, memory_order_release);
        return 0;
}

/* With the locks held: nodes that other processes found to be served again. */
static void learn(void)
{
        static bool said;

        while (nnodes < tree.head->nnodes && tree.head->node[nnodes].again) {
                const struct tree_node *t = &tree.head->node[nnodes];
                const struct node_option *o = far_returned_option(nodes[t->again - 1]);
                char why[FAR_WHY] = "no memory";
                struct far_node *n = o ? far_node_open(o, &t->kept, own_member(), why) : NULL;
                if (n && append(n, why) == 0)
                        continue;
                if (n)
                        far_node_close(n);
                if (!said)
                        warnx_("%s: it is served again, but this process cannot use it: %s",
                               nodes[t->again - 1]->option->origin, why);
                said = true;
                free((void *)o);
                return;
        }
}

/* Maps a unit of TREE_WINDOW in the VM; *gpa: its address.  Memory slots are scarce, so the mapped
 * part grows in doubling steps: 16 units, 16, 32, 64, ... */
static int map_unit(struct vm *vm, uint32_t unit, uint64_t *gpa)
{
        unsigned step = unit < 16 ? 0 : 28 - (unsigned)__builtin_clz(unit);
        uint64_t first = step ? 8ull << step : 0, end = 16ull << step;

        if (end > 1 + (uint64_t)tree.max_slabs)
                end = 1 + (uint64_t)tree.max_slabs;
        if (!map_gpa[step]) {
                uint64_t size = (end - first) * SLAB_MAP_SIZE, at = vm_take_gpa(vm, size);
                int err = at ? vm_add_memory(vm, at, tree.units + first * SLAB_MAP_SIZE, size)
                             : -ENOSPC;
                if (err)
                        return err;
                map_gpa[step] = at;
        }
        *gpa = map_gpa[step] + (unit - first) * SLAB_MAP_SIZE;
        return 0;
}

/* Publishes slab i, far_slab(i), as a slab of this process. */
static void publish(uint32_t i, const struct slab *s)
{
        CONTROL->slabs[i] = *s;
        timing_slab(&CONTROL->slabs[i], far_slab(i)->place[0].node->option, CONTROL->tsc_khz);
        CONTROL->tree_number = tree.self;
        /* Release: kern on other vCPUs looks up the slab of a slot number.  No slot of this slab
         * exists before the count covers it. */
        __atomic_store_n(&CONTROL->nslabs, i + 1, __ATOMIC_RELEASE);
}

/* Other processes of the tree may still free slots, or die. */
static int nothing_left(void) { return tree_alone_locked(&tree) ? -ENOSPC : -EBUSY; }

/* Nodes that do not answer at present, or were left: a set.  A copy on one of them would be wanting
 * for good. */
static uint64_t down(void)
{
        uint64_t set = 0;

        for (unsigned i = 0; i < nnodes; i++)
                if (is(&nodes[i]->is_left) ||
                    (nodes[i]->hands_back && io_is_attached() && !is(&nodes[i]->up)))
                        set |= 1ull << i;
        return set;
}

/* Nodes that are to be left: a set. */
static uint64_t leaving(void) { return atomic_load(&common()->leaving); }
static bool is_leaving(const struct far_node *n) { return leaving() >> n->index & 1; }

/* Empties the entry of slab i, to be filled by add_place(). */
static struct far_slab *new_slab(uint32_t i)
{
        struct far_slab *f = far_slab(i);

        f->places = 0;
        return f;
}

/* Release: the I/O side sees what is in place[places]. */
static void add_place(struct far_slab *f)
{
        atomic_fetch_add_explicit(&f->places, 1, memory_order_release);
}

/* Leases `pages` pages of a node, for the next place of a slab, which add_place() makes one.  False:
 * it has no more, or does not answer. */
static bool lease_place(struct vm *vm, struct far_node *n, uint32_t pages, struct slab *s,
                        struct far_slab *f)
{
        struct far_place *place = &f->place[f->places];

        *place = (struct far_place){ .node = n, .first = n->leased };
        int err = n->driver->lease(n, vm, n->leased, pages, s, place);

        if (err == -ESHUTDOWN) {
                info_("%s: it is to be left, so it gives nothing more", n->option->origin);
                n->silent = err;
        } else if ((err == -ENOLINK || err == -ETIMEDOUT) && n->hands_back && !n->lost) {
                info_("%s: it does not answer, so it gives nothing now", n->option->origin);
        } else if (err == -ENOLINK || err == -ETIMEDOUT) {
                /* other processes of the tree may reach it */
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

/* Of a slab of remote nodes. */
static int check_copies(uint32_t i, unsigned count)
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

/* What all processes of the tree need to know of a place. */
static struct tree_place tree_place_of(const struct far_place *p)
{
        struct tree_place t = { .node = p->node->index, .first = p->first };

        memcpy(t.word, p->word, sizeof(t.word));
        return t;
}

/* Puts slab i, with all its places, in the list of the tree. */
static void list_slab(uint32_t i, const struct slab *s)
{
        struct tree_slab *t = &tree.head->slab[i];
        const struct far_slab *f = far_slab(i);

        bool bits = opt.replicas > 1;

        *t = (struct tree_slab){ .kind = s->kind, .pages = s->pages, .places = f->places };
        for (unsigned k = 0; k < f->places; k++) {
                t->place[k] = tree_place_of(&f->place[k]);
                bits |= is_leaving(f->place[k].node);   /* leave.h, [L] */
        }
        atomic_store(&tree_map(tree.units, i)->places,
                     s->kind == SLAB_REMOTE && bits ? f->places : 0);
        /* From here on the list is valid, even if this process dies now (tree.c, mend_head). */
        __atomic_store_n(&tree.head->nslabs, i + 1, __ATOMIC_RELEASE);
}

/* Do bits say which places of slab i have a page? */
static bool has_bits(uint32_t i) { return atomic_load(&tree_map(tree.units, i)->places) > 0; }

/* A place that another process leased becomes one of this process too.  For plain memory, leasing
 * the same pages again maps them. */
static int use_place(struct vm *vm, uint32_t i, struct slab *s)
{
        struct far_slab *f = far_slab(i);
        const struct tree_place *p = &tree.head->slab[i].place[f->places];

        if (p->node >= nnodes)
                return -ENOLINK;        /* learn() has said why */
        struct far_node *n = nodes[p->node];
        struct far_place *place = &f->place[f->places];

        *place = (struct far_place){ .node = n, .first = p->first };
        memcpy(place->word, p->word, sizeof(place->word));
        int err = n->driver->use ? n->driver->use(n, place, s->pages)
                                 : n->driver->lease(n, vm, p->first, s->pages, s, place);
        if (err && n->lost && has_bits(i))
                err = 0;                /* other nodes have what it had */
        if (!err)
                add_place(f);
        return err;
}

/* ---- copies in place of lost ones ---- */

static bool is_gone(const struct far_node *n, int64_t now)
{
        int64_t since = n->down_since;

        return n->lost || is_leaving(n) || (since && now - since > opt.timeout_ms);
}

/* Nodes that can take no further copy of a slab: a set.  *live: copies of it that are left.  What a
 * node to be left has is copied to nodes that fence only (repair.c). */
static uint64_t unfit(const struct far_slab *f, uint32_t pages, int64_t now, unsigned *live)
{
        uint64_t set = down() | leaving();
        bool moves = false;

        for (unsigned k = 0; k < f->places; k++)
                moves |= is_leaving(f->place[k].node);
        for (unsigned i = 0; i < nnodes; i++)
                if (nodes[i]->lost || nodes[i]->driver->kind != SLAB_REMOTE ||
                    (moves && !nodes[i]->fences) || nodes[i]->pages - nodes[i]->leased < pages)
                        set |= 1ull << i;
        *live = 0;
        for (unsigned k = 0; k < f->places; k++) {
                if (is_gone(f->place[k].node, now))
                        continue;
                ++*live;
                for (unsigned i = 0; i < nnodes; i++)
                        if (placement_fail_together(f->place[k].node, nodes[i]))
                                set |= 1ull << i;
        }
        return set;
}

/* With the locks held.  True: the slab has one more place, without any page yet. */
static bool add_copy(struct vm *vm, uint32_t i)
{
        struct far_slab *f = far_slab(i);
        struct tree_slab *t = &tree.head->slab[i];
        struct slab s = { .kind = t->kind, .pages = t->pages };
        unsigned live, k = f->places;
        uint64_t without = unfit(f, s.pages, now_ms(), &live);
        int n;

        if (!has_bits(i) || live >= opt.replicas || k == FAR_PLACES || k != t->places ||
            (n = placement_next(opt.placement, nodes, nnodes, without)) < 0 ||
            !lease_place(vm, nodes[n], s.pages, &s, f))
                return false;
        /* In this order: who sets a copy's bit knows the place, and then all others know that there
         * is one (copies_written()). */
        t->place[k] = tree_place_of(&f->place[k]);
        atomic_store(&tree_map(tree.units, i)->places, k + 1);
        atomic_store(&t->places, k + 1);
        add_place(f);
        return true;
}

/* ---- nodes that are to be left (leave.h) ---- */

/* copies.h, [B]: all that was written is at the first place. */
static void give_bits(uint32_t i)
{
        struct slab_map *map = tree_map(tree.units, i);

        if (has_bits(i))
                return;
        memset((void *)map->good[0], 0xff, sizeof(map->good[0]));
        atomic_store(&map->places, 1);
}

static bool is_on(uint32_t slab, const struct far_node *n)
{
        const struct tree_slab *t = &tree.head->slab[slab];

        for (uint32_t k = 0; k < t->places; k++)
                if (t->place[k].node == n->index)
                        return true;
        return false;
}

/* With the locks held.  The node itself has asked this process. */
static void note_asked(const struct far_node *n)
{
        atomic_fetch_or(&common()->process[tree.self].asked, 1ull << n->index);
        if (is_leaving(n))
                return;
        for (uint32_t i = 0; i < tree.head->nslabs; i++)
                if (is_on(i, n))
                        give_bits(i);
        /* [L] */
        atomic_fetch_or(&common()->leaving, 1ull << n->index);
}

/* With the locks held.  Every other process that has slots has been asked by the node itself, so it
 * answers for itself, or has left. */
static bool is_unneeded(const struct far_node *n)
{
        tree_mend_locked(&tree);
        for (uint32_t p = 0; p < atomic_load(&common()->numbers); p++) {
                const struct tree_process *o = &common()->process[p];
                if (p == tree.self || tree.head->record[p].state != RECORD_USED ||
                    atomic_load(&o->owned) + atomic_load(&o->shared) == 0)
                        continue;
                if (!((atomic_load(&o->asked) | atomic_load(&o->left)) >> n->index & 1))
                        return false;
        }
        return true;
}

/* With the locks held, after places were added where that was possible. */
static bool is_stuck(const struct far_node *n)
{
        int64_t now = now_ms();

        for (uint32_t i = 0; i < CONTROL->nslabs; i++) {
                const struct far_slab *f = far_slab(i);
                bool on = false, live = false;
                for (unsigned k = 0; k < f->places; k++) {
                        on |= f->place[k].node == n;
                        live |= !is_gone(f->place[k].node, now);
                }
                if (on && !live)
                        return true;
        }
        return false;
}

static bool is_moving(const struct far_node *n) { return is(&n->asked) && !n->lost; }

static void heed_asked(void)
{
        for (unsigned i = 0; i < nnodes; i++)
                if (is_moving(nodes[i]))
                        note_asked(nodes[i]);
}

static bool has_dead(void)
{
        for (uint32_t p = 0; p < atomic_load(&common()->numbers); p++)
                if (tree.head->record[p].state == RECORD_DEAD)
                        return true;
        return false;
}

/* True: dead processes are to be buried, since they may hold what others wait for, as the right to
 * copy shared slots (repair.c). */
static bool judge_asked(void)
{
        bool moves = false;

        for (unsigned i = 0; i < nnodes; i++) {
                struct far_node *n = nodes[i];
                if (!is_moving(n))
                        continue;
                moves = true;
                atomic_store_explicit(&n->stuck, is_stuck(n), memory_order_relaxed);
                atomic_store_explicit(&n->unneeded, is_unneeded(n), memory_order_relaxed);
        }
        return moves && has_dead();
}

/* With one copy of each page there is nothing to look for unless a node is to be left. */
static bool has_work(void)
{
        return in_tree && (opt.replicas > 1 || leave_is_asked() || leaving());
}

/* Finds other nodes for slabs whose copies have become too few, and places that other processes
 * found.  May wait for nodes. */
static void rebuild(struct vm *vm)
{
        unsigned added = 0, found = 0;
        bool dead = false;

        io_keep();
        pthread_mutex_lock(&lease_lock);
        bool work = has_work();
        if (work) {
                tree_lock(&tree);
                learn();
                pull();
                heed_asked();
                for (uint32_t i = 0; i < CONTROL->nslabs; i++) {
                        struct slab s = CONTROL->slabs[i];
                        while (far_slab(i)->places < tree.head->slab[i].places &&
                               use_place(vm, i, &s) == 0)
                                found++;
                        added += add_copy(vm, i);
                }
                dead = judge_asked();
                push();
                tree_unlock(&tree);
        }
        pthread_mutex_unlock(&lease_lock);
        if (added)
                warnx_("far memory: %u slab%s get%s new copies on other nodes", added,
                       added == 1 ? "" : "s", added == 1 ? "s" : "");
        /* Nodes that answer again are told who died meanwhile; and what waits may wait for that. */
        if (work && (dead || atomic_load(&common()->uncut) & ~down() || request_waits()))
                cut_dead(&cutter, vm);
        if (added || found)
                repair_wanted();
        if (work && then)
                then(vm);
}

void slabs_then(void (*look)(struct vm *vm)) { then = look; }

/* The I/O side is there. */
static void use_remote(struct vm *vm)
{
        io_start(vm, tree.pieces);
        rebuild_start(vm, rebuild);
}

/* Chooses nodes for a new slab; those that are to be left only if no other has room. */
static unsigned choose(unsigned index[REPLICAS_MAX], uint32_t *pages)
{
        static bool said;
        uint64_t without = down(), asked = leaving();

        for (unsigned i = 0; i < nnodes; i++)
                asked |= is(&nodes[i]->asked) ? 1ull << i : 0;
        unsigned count = placement_copies(opt.placement, nodes, nnodes, without | asked,
                                          opt.replicas, index, pages);
        if (count || !(asked & ~without))
                return count;
        count = placement_copies(opt.placement, nodes, nnodes, without, opt.replicas, index, pages);
        if (count && !said)
                warnx_("far memory: new pages go to a node that is to be left, since no other has "
                       "room: name more nodes with --node");
        said |= count > 0;
        return count;
}

/* Leases one more slab for the tree; it is also this process's next one. */
static int lease_new(struct vm *vm, uint32_t i, uint64_t gpa)
{
        unsigned index[REPLICAS_MAX], count;
        uint32_t pages;

        while ((count = choose(index, &pages)) > 0) {
                struct slab s = { .kind = nodes[index[0]]->driver->kind,
                                  .pages = pages,
                                  .map_gpa = gpa };
                struct far_slab *f = new_slab(i);
                if (s.kind == SLAB_REMOTE) {
                        use_remote(vm);
                        io_wait_attached();
                }
                for (unsigned k = 0; k < count; k++)
                        if (lease_place(vm, nodes[index[k]], pages, &s, f))
                                add_place(f);
                if (f->places == 0)
                        continue;
                if (s.kind == SLAB_REMOTE && check_copies(i, f->places) != 0)
                        break;
                s.node = f->place[0].node->index;
                list_slab(i, &s);
                publish(i, &s);
                return 0;
        }
        return nothing_left();
}

/* Uses a slab that another process leased. */
static int use_existing(struct vm *vm, uint32_t i, uint64_t gpa)
{
        const struct tree_slab *known = &tree.head->slab[i];
        struct slab s = { .kind = known->kind,
                          .node = (uint32_t)known->place[0].node,
                          .pages = known->pages,
                          .map_gpa = gpa };
        struct far_slab *f = new_slab(i);
        int err = 0;

        if (s.kind == SLAB_REMOTE)
                use_remote(vm);
        while (f->places < known->places && !err)
                err = use_place(vm, i, &s);
        if (!err && has_bits(i))
                add_copy(vm, i);        /* this process may have left the node that has it */
        if (!err)
                publish(i, &s);
        return err;
}

/* kern uses `have` slabs and asks for the next one. */
static int lease_locked(struct vm *vm, uint32_t have, bool cut)
{
        uint64_t gpa;

        if (have < CONTROL->nslabs)
                return 0;               /* kern had no page tables for it the last time */
        if (have > CONTROL->nslabs)
                return -EINVAL;
        if (have >= tree.head->nslabs && tree_mend_locked(&tree) > 0)
                return -EAGAIN;
        if (cut && tree_uncut_locked(&tree, have >= tree.head->nslabs))
                return -ECHILD;
        if (have >= tree.max_slabs)
                return nothing_left();
        int err = map_unit(vm, 0, &CONTROL->tree_gpa);
        if (!err)
                err = map_unit(vm, 1 + have, &gpa);
        if (err)
                return err;
        return have < tree.head->nslabs ? use_existing(vm, have, gpa) : lease_new(vm, have, gpa);
}

void slabs_cut(struct vm *vm, bool full)
{
        tree_lock(&tree);
        tree_mend_locked(&tree);
        bool many = tree_uncut_locked(&tree, full);
        tree_unlock(&tree);
        if (many && (full || io_is_attached()))
                cut_dead(&cutter, vm);
}

/* --- a node more --- */

/* With lease_lock held.  In the tree, under its lock, which it takes. */
static bool is_alone(void)
{
        tree_lock(&tree);
        tree_mend_locked(&tree);
        bool alone = tree_alone_locked(&tree);
        tree_unlock(&tree);
        return alone;
}

/* With lease_lock held.  The slots that a process holds name slabs by number, and slabs name nodes:
 * processes that were forked before have a table without the node, and no way to be told. */
static int check_alone(char why[FAR_WHY])
{
        if (!in_tree || is_alone())
                return 0;
        snprintf(why, FAR_WHY, "the program has children, or a parent under vmrun, that share its "
                 "far memory and would not know the node: add it before the program forks, or when "
                 "the others have ended, or name it with --node at the start");
        return -EBUSY;
}

int slabs_may_add(struct vm *vm, uint64_t *member, char why[FAR_WHY])
{
        int err = 0;

        pthread_mutex_lock(&lease_lock);
        if (!in_tree && inherited >= 0)
                err = start_tree();     /* it says why */
        if (err)
                snprintf(why, FAR_WHY, "the far memory of the program before cannot be joined: %s",
                         strerror(-err));
        bool others = !err && in_tree && !is_alone();
        pthread_mutex_unlock(&lease_lock);
        if (others)                     /* perhaps they have ended */
                cut_dead(&cutter, vm);
        pthread_mutex_lock(&lease_lock);
        err = err ? err : check_alone(why);
        *member = own_member();
        pthread_mutex_unlock(&lease_lock);
        return err;
}

/* How many slabs a node has given and will give. */
static uint32_t slabs_of(const struct far_node *n)
{
        return n->slabs + placement_left(n);
}

/* The node's share of addresses and names.  With lease_lock held. */
static int cut_to_room(struct vm *vm, struct far_node *n, char why[FAR_WHY])
{
        bool memory = n->driver->kind == SLAB_MEMORY;
        uint64_t had = n->pages, room = vm_far_room(vm), most = room;
        uint64_t lost = 2ull * (n->granule > 512 ? n->granule : 512);
        uint32_t names = in_tree ? tree.max_slabs : SLABS_MAX;
        char a[32], b[32];

        for (unsigned i = 0; i < nnodes; i++)
                names -= slabs_of(nodes[i]) < names ? slabs_of(nodes[i]) : names;
        if (!in_tree && names > SLABS_TO_ADD)
                names -= SLABS_TO_ADD;  /* for the next one */
        if (memory && most > (memory_room > lost ? memory_room - lost : 0))
                most = memory_room > lost ? memory_room - lost : 0;
        n->pages = n->pages < most ? n->pages : most;
        n->slab_most = memory || opt.placement == PLACE_LINEAR
                               ? SLAB_LAST : placement_most(n->pages, 1, names);
        n->pages = pages_of(n, names);
        if (!n->pages) {
                snprintf(why, FAR_WHY, "there is no room for its slabs in this run: name it with "
                         "--node at the start");
                return -ENOSPC;
        }
        if (n->pages < had)
                warnx_("%s: only %s of %s are used: more could only be named with --node at the "
                       "start", n->option->origin, size_text(n->pages * PAGE_SIZE, a),
                       size_text(had * PAGE_SIZE, b));
        if (memory)
                memory_room -= n->pages + lost;
        if (!in_tree)
                max_slabs += slabs_of(n);
        return 0;
}

uint64_t slabs_member(void)
{
        pthread_mutex_lock(&lease_lock);
        uint64_t member = in_tree ? own_member() : 0;
        pthread_mutex_unlock(&lease_lock);
        return member;
}

int slabs_return(struct vm *vm, struct far_node *n, unsigned was, char why[FAR_WHY])
{
        pthread_mutex_lock(&lease_lock);
        tree_lock(&tree);
        learn();
        pull();
        struct tree_node *t = &tree.head->node[nnodes];
        int err = 0;

        for (unsigned i = was + 1; i < nnodes && !err; i++)
                err = strcmp(nodes[i]->url, n->url) == 0 ? -EEXIST : 0;
        if (!err && (nnodes != tree.head->nnodes || nnodes == NODES_MAX))
                err = -EBUSY;           /* learn() has said why */
        if (err)
                goto out;
        err = cut_to_room(vm, n, why);
        *t = (struct tree_node){ .again = was + 1 };
        if (!err && (!n->driver->keep || !n->driver->keep(n, &t->kept)))
                err = -ENOTSUP;
        if (!err)
                err = append(n, why);
        if (!err)
                tree.head->nnodes = nnodes;
        push();
out:
        tree_unlock(&tree);
        pthread_mutex_unlock(&lease_lock);
        return err;
}

int slabs_add(struct vm *vm, struct far_node *n, char why[FAR_WHY])
{
        pthread_mutex_lock(&lease_lock);
        int err = n->member == own_member() ? check_alone(why) : -ESTALE;
        if (err == -ESTALE)
                snprintf(why, FAR_WHY, "the program forked meanwhile: try again");
        if (!err && in_tree) {          /* processes that have ended may have leased more */
                tree_lock(&tree);
                pull();
                tree_unlock(&tree);
        }
        if (!err)
                err = cut_to_room(vm, n, why);
        if (!err)
                err = io_add(n, why);
        if (!err) {
                /* What the tree says of it comes after; no other process reads it before a slab
                 * names the node. */
                if (in_tree)
                        tree_lock(&tree);
                nnodes = far_nodes();
                cutter.nnodes = nnodes;
                if (in_tree) {
                        tree.head->nnodes = nnodes;
                        push();
                        tree_unlock(&tree);
                }
        }
        pthread_mutex_unlock(&lease_lock);
        return err;
}

/* --- what is used of each node --- */

static uint64_t held_in_chunk(uint32_t slab, uint32_t chunk)
{
        const slot_word_t *word = tree_map(tree.units, slab)->word + chunk * CHUNK_PAGES;
        uint16_t mine = (uint16_t)(SLOT_OWNED | tree.self);
        uint64_t n = tree_shared_in(&tree, slab, chunk);

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
                        if (chunk_touched(tree_map(tree.units, slab), tree.self, chunk))
                                add_held(used, slab, held_in_chunk(slab, chunk));
}

/* -ECHILD, if cut: dead processes are to be cut off first. */
static int lease(struct vm *vm, uint32_t have, bool cut)
{
        pthread_mutex_lock(&lease_lock);
        int err = start_tree();
        if (!err) {
                tree_lock(&tree);
                learn();
                pull();
                err = lease_locked(vm, have, cut);
                push();
                tree_unlock(&tree);
        }
        pthread_mutex_unlock(&lease_lock);
        return err;
}

int far_lease(struct vm *vm, uint32_t have)
{
        int err = lease(vm, have, true);

        if (err == -ECHILD)
                err = cut_dead(&cutter, vm) ? -EAGAIN : lease(vm, have, false);
        return err;
}

bool slabs_stop(unsigned limit_ms) { return lock_within(&lease_lock, limit_ms); }

struct tree *slabs_tree(void)
{
        pthread_mutex_lock(&lease_lock);
        int err = start_tree();
        pthread_mutex_unlock(&lease_lock);
        return err ? NULL : &tree;
}

int slabs_forked(const struct tree_child *c)
{
        memset(map_gpa, 0, sizeof(map_gpa));
        window_forked();
        pthread_mutex_init(&cutter.lock, NULL);
        int err = tree_be_child(&tree, c);
        if (!err) {
                is_member();
                note_left();
        }
        return err;
}

/* slabs_stop() was called before.  A program after execve belongs to the inherited tree even if it
 * never leased. */
bool slabs_last(bool still, unsigned limit_ms)
{
        if (!in_tree && inherited >= 0 && start_tree() != 0)
                return false;
        return !in_tree || tree_leave(&tree, still, limit_ms);
}

void slabs_close(void)
{
        if (in_tree)
                tree_close(&tree);
        in_tree = false;
        memset(map_gpa, 0, sizeof(map_gpa));
}

int64_t far_exit_lease(struct thread *t, struct exit_req *rq)
{
        return far_lease(t->vm, (uint32_t)rq->a[0]);
}

int64_t far_exit_no_memory(void)
{
        for (unsigned i = 0; i < nnodes; i++) {
                const struct far_node *n = nodes[i];
                if (n->silent)
                        die_(EXIT_VMRUN_FAILED,
                             "%s: it gave no more space when the program needed some: %s; without "
                             "it the memory is full, so the program ends: see the node, or give "
                             "another one",
                             n->option->origin, n->lost ? n->why : strerror(-n->silent));
        }
        return 0;
}

int64_t far_exit_release(struct thread *t, struct exit_req *rq)
{
        const uint64_t *slots = rq->a[1] <= PAGE_SIZE / sizeof(*slots)
                                        ? kern_pointer(t, rq->a[0], rq->a[1] * sizeof(*slots))
                                        : NULL;

        if (!in_tree || !slots || repair_release(slots, rq->a[1]) != 0)
                die_(EXIT_VMRUN_FAILED, "kern let go of a slot that it does not hold: a bug in "
                                        "vmrun, or the program may have written into kern");
        return 0;
}
