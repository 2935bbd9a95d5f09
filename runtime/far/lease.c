/*
 * See slabs.h: how a slab is leased.  Which node gives it is decided in placement.c.
 *
 * The sequence of slabs belongs to the process tree (tree.h): a process first uses the slabs that
 * others of the tree have leased, and only then leases another.
 */
#include <errno.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "far/held.h"
#include "far/io.h"
#include "far/lease.h"
#include "far/moves.h"
#include "far/nodes.h"
#include "far/placement.h"
#include "far/rebuild.h"
#include "far/slabs.h"
#include "far/slabs_more.h"
#include "far/timing.h"
#include "far/window.h"
#include "vm/kvm.h"
#include "vm/vcpu.h"

/* Where each step of TREE_WINDOW is mapped in the VM; 0: it is not.  See map_unit(). */
static uint64_t step_gpa[16];

/* Maps a unit of TREE_WINDOW in the VM; *gpa: its address.  Memory slots are scarce, so the mapped
 * part grows in doubling steps: 16 units, 16, 32, 64, ... */
static int map_unit(struct vm *vm, uint32_t unit, uint64_t *gpa)
{
        unsigned step = unit < 16 ? 0 : 28 - (unsigned)__builtin_clz(unit);
        uint64_t first = step ? 8ull << step : 0, end = 16ull << step;

        if (end > 1 + (uint64_t)leases.tree.max_slabs)
                end = 1 + (uint64_t)leases.tree.max_slabs;
        if (!step_gpa[step]) {
                uint64_t size = (end - first) * SLAB_MAP_SIZE, at = vm_take_gpa(vm, size);
                char *from = leases.tree.units + first * SLAB_MAP_SIZE;
                int err = at ? vm_add_memory(vm, at, from, size) : -ENOSPC;
                if (err)
                        return err;
                step_gpa[step] = at;
        }
        *gpa = step_gpa[step] + (unit - first) * SLAB_MAP_SIZE;
        return 0;
}

/* Nodes that kern can read by itself: a set. */
static uint64_t readable_by_kern(void)
{
        uint64_t set = 0;

        for (unsigned i = 0; i < leases.nnodes; i++) {
                const struct far_node *n = leases.nodes[i];
                if (n->driver->direct && n->driver->direct(n))
                        set |= 1ull << i;
        }
        return set;
}

/* Publishes slab i, far_slab(i), as a slab of this process. */
static void publish(uint32_t i, const struct slab *s)
{
        CONTROL->slabs[i] = *s;
        CONTROL->slabs[i].queues = s->kind == SLAB_REMOTE ? readable_by_kern() : 0;
        timing_slab(&CONTROL->slabs[i], far_slab(i)->place[0].node->option, CONTROL->tsc_khz);
        CONTROL->tree_number = leases.tree.self;
        /* Release: kern on other vCPUs looks up the slab of a slot number, and then sees its
         * entry.  No slot of this slab exists before the count covers it. */
        __atomic_store_n(&CONTROL->nslabs, i + 1, __ATOMIC_RELEASE);
}

/* Other processes of the tree may still free slots, or die. */
static int nothing_left(void) { return tree_alone_locked(&leases.tree) ? -ENOSPC : -EBUSY; }

/* Starts the I/O side, once. */
static void use_remote(struct vm *vm)
{
        io_start(vm, leases.tree.pieces);
        rebuild_start(vm, moves_look);
}

/* Chooses nodes for a new slab; draining nodes only if no other has room. */
static unsigned choose(unsigned index[REPLICAS_MAX], uint32_t *pages)
{
        static bool said;
        uint64_t without = slabs_down(), asked = slabs_draining();

        for (unsigned i = 0; i < leases.nnodes; i++)
                asked |= is_set(&leases.nodes[i]->asked) ? 1ull << i : 0;
        unsigned count = placement_copies(opt.placement, leases.nodes, leases.nnodes,
                                          without | asked, opt.replicas, index, pages);
        if (count || !(asked & ~without))
                return count;
        count = placement_copies(opt.placement, leases.nodes, leases.nnodes, without,
                                 opt.replicas, index, pages);
        if (count && !said)
                warnx_("far memory: new pages go to a draining node, since no other has room: name "
                       "more nodes with --node");
        said |= count > 0;
        return count;
}

/* Nodes are to come up (far_node.expected_until): until then a new slab would be on fewer nodes
 * than it can. */
static bool are_expected(void)
{
        for (unsigned i = 0; i < leases.nnodes; i++)
                if (far_expected(leases.nodes[i]))
                        return true;
        return false;
}

/* Leases one more slab for the tree; it is also this process's next one.  -EINPROGRESS: not before
 * nodes are there that are expected. */
static int lease_new(struct vm *vm, uint32_t i, uint64_t gpa)
{
        unsigned index[REPLICAS_MAX], count;
        uint32_t pages;

        while ((count = choose(index, &pages)) > 0) {
                struct slab s = { .kind = leases.nodes[index[0]]->driver->kind,
                                  .pages = pages,
                                  .map_gpa = gpa };
                struct far_slab *f = far_slab_none(i);
                if (s.kind == SLAB_REMOTE) {
                        use_remote(vm);
                        io_wait_attached();
                        if (are_expected())
                                return -EINPROGRESS;
                }
                for (unsigned k = 0; k < count; k++)
                        if (place_lease(vm, leases.nodes[index[k]], pages, &s, f))
                                place_add(f);
                if (f->places == 0)
                        continue;
                if (s.kind == SLAB_REMOTE && places_check(i, f->places) != 0)
                        break;
                s.node = f->place[0].node->index;
                places_list(i, &s);
                publish(i, &s);
                return 0;
        }
        return nothing_left();
}

/* Uses a slab that another process leased. */
static int use_existing(struct vm *vm, uint32_t i, uint64_t gpa)
{
        const struct tree_slab *known = &leases.tree.head->slab[i];
        struct slab s = { .kind = known->kind,
                          .node = (uint32_t)known->place[0].node,
                          .pages = known->pages,
                          .map_gpa = gpa };
        struct far_slab *f = far_slab_none(i);
        int err = 0;

        if (s.kind == SLAB_REMOTE)
                use_remote(vm);
        while (f->places < known->places && !err)
                err = place_use(vm, i, &s);
        if (!err && places_have_bits(i))
                place_add_copy(vm, i);  /* the node that has it may be drained for this process */
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
        if (have >= leases.tree.head->nslabs &&
            (tree_mend_locked(&leases.tree) > 0 || tree_unburied_locked(&leases.tree)))
                return -EAGAIN;
        if (cut && tree_uncut_locked(&leases.tree, have >= leases.tree.head->nslabs))
                return -ECHILD;
        if (have >= leases.tree.max_slabs)
                return nothing_left();
        int err = map_unit(vm, 0, &CONTROL->tree_gpa);
        if (!err)
                err = map_unit(vm, 1 + have, &gpa);
        if (err)
                return err;
        return have < leases.tree.head->nslabs ? use_existing(vm, have, gpa)
                                            : lease_new(vm, have, gpa);
}

void slabs_cut(struct vm *vm, bool full)
{
        pthread_mutex_lock(&leases.lock);
        tree_lock(&leases.tree);
        tree_mend_locked(&leases.tree);
        bool cut = tree_uncut_locked(&leases.tree, full) && (full || io_is_attached());
        if (cut)
                slabs_learn();          /* a node that is not known cannot be asked */
        tree_unlock(&leases.tree);
        pthread_mutex_unlock(&leases.lock);
        if (cut)
                cut_dead(&leases.cutter, vm);
}

/* -ECHILD, if cut: dead processes are to be cut off first. */
static int lease(struct vm *vm, uint32_t have, bool cut)
{
        pthread_mutex_lock(&leases.lock);
        int err = slabs_start();
        if (!err) {
                tree_lock(&leases.tree);
                slabs_learn();
                slabs_pull();
                err = lease_locked(vm, have, cut);
                slabs_push();
                if (err == -EAGAIN && tree_unburied_locked(&leases.tree))
                        tree_yield(&leases.tree);       /* kern asks again at once */
                tree_unlock(&leases.tree);
        }
        pthread_mutex_unlock(&leases.lock);
        return err;
}

/* Without any lock. */
static void await_nodes(void)
{
        const struct timespec between = { .tv_nsec = 2000000 };

        while (are_expected()) {
                io_turn();
                nanosleep(&between, NULL);
        }
}

/* Once the nodes are there that are to come. */
static int lease_then(struct vm *vm, uint32_t have, bool cut)
{
        int err;

        while ((err = lease(vm, have, cut)) == -EINPROGRESS)
                await_nodes();
        return err;
}

int far_lease(struct vm *vm, uint32_t have)
{
        int err = lease_then(vm, have, true);

        if (err == -ECHILD)
                err = cut_dead(&leases.cutter, vm) ? -EAGAIN : lease_then(vm, have, false);
        return err;
}

void slabs_forked(const struct tree_child *c)
{
        memset(step_gpa, 0, sizeof(step_gpa));
        window_forked();
        pthread_mutex_init(&leases.cutter.lock, NULL);
        tree_be_child(&leases.tree, c);
        slabs_is_member();
}

int64_t far_exit_lease(struct thread *t, struct exit_req *rq)
{
        return far_lease(t->vm, (uint32_t)rq->a[0]);
}

int64_t far_exit_no_memory(void)
{
        for (unsigned i = 0; i < leases.nnodes; i++) {
                const struct far_node *n = leases.nodes[i];
                if (n->silent)
                        die_(EXIT_VMRUN_FAILED,
                             "%s: the node gave no more space when the program needed some: %s; "
                             "without it the memory is full, so the program ends: see the node, or "
                             "give another one",
                             n->option->origin, n->lost ? n->why : strerror(-n->silent));
        }
        return 0;
}

int64_t far_exit_release(struct thread *t, struct exit_req *rq)
{
        const uint64_t *slots = rq->a[1] <= PAGE_SIZE / sizeof(*slots)
                                        ? kern_pointer(t, rq->a[0], rq->a[1] * sizeof(*slots))
                                        : NULL;

        if (!leases.in_tree || !slots || held_release(slots, rq->a[1]) != 0)
                die_(EXIT_VMRUN_FAILED, "kern let go of a slot that it does not hold: a bug in "
                                        "vmrun, or the program may have written into kern");
        return 0;
}
