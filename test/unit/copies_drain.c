/*
 * See copies_model.h: drain.c and moves.c, as they are, and the functions of slabs.h that they
 * call.  The state of drain.c is swapped together with that of request.c.
 */
#include <string.h>
#include <guest_ram.h>
#include "base/message.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/drain.h"
#include "far/io.h"
#include "far/repair.h"
#include "far/request.h"
#include "far/slabs.h"
#include "far/slabs_more.h"
#include "include/allocator.h"
#include "vm/vm.h"
#include "copies_hooks.h"

struct leases leases;

/* It is that of the process that runs. */
static void load_leases(struct seat *s)
{
        leases.nodes = s->nodes;
        *(unsigned *)&leases.nnodes = NODES;
        leases.tree = s->tree;          /* it is not changed through here */
        leases.in_tree = true;
}

#undef CONTROL
#define CONTROL control_of_self()
#undef TREE_WINDOW
#define TREE_WINDOW units
#define cut_dead(c, vm) (cut_dead)(&self()->cutter, vm)

bool direct_is_idle(const struct far_node *n) { return n != NULL; }
#include "far/drain.c"
#include "far/moves.c"

/* ---- the sequence of slabs ---- */

void io_keep(void) {}
void slabs_learn(void) {}
void slabs_pull(void) {}
void slabs_push(void) {}

uint64_t slabs_down(void)
{
        uint64_t set = 0;

        for (unsigned k = 0; k < NODES; k++)
                if (*(bool *)&self()->node[k].is_drained || !*(bool *)&self()->node[k].up)
                        set |= 1ull << k;
        return set;
}

bool place_is_gone(const struct far_node *n, int64_t now)
{
        (void)now;
        return n->lost || is_draining(n);
}

static void add(struct far_slab *f, unsigned node)
{
        f->place[f->places] = (struct far_place){ .node = &self()->node[node] };
        *(unsigned *)&f->places += 1;
}

int place_use(struct vm *vm, uint32_t i, struct slab *s)
{
        (void)vm, (void)s;
        struct far_slab *f = far_slab(i);

        add(f, head->slab[i].place[f->places].node);
        return 0;
}

/* A node that is drained makes no lease any more: rule 17. */
static bool gives_leases(unsigned k)
{
        return !self()->node[k].lost && !nodes[k].drained && !(slabs_draining() >> k & 1);
}

bool place_add_copy(struct vm *vm, uint32_t i)
{
        (void)vm;
        struct tree_slab *t = &head->slab[i];
        struct far_slab *f = far_slab(i);
        unsigned places = *(const uint32_t *)&t->places, next = rnd(NODES);
        bool has[NODES] = { false }, wanting = false;

        for (unsigned k = 0; k < places; k++) {
                has[t->place[k].node] = true;
                wanting |= place_is_gone(f->place[k].node, 0);
        }
        while (next < NODES && (has[next] || !gives_leases(next)))
                next++;
        if (!*(const uint32_t *)&tree_map(units, i)->places || !wanting || next == NODES ||
            places == PLACES_MAX)
                return false;
        met.places++;
        t->place[places].node = next;
        *(uint32_t *)&tree_map(units, i)->places = places + 1;
        crash_point();
        *(uint32_t *)&t->places = places + 1;
        place_added = sched_steps;
        crash_point();
        add(f, next);
        return true;
}

/* ---- what must hold ---- */

static uint64_t draining_now(void) { return *(uint64_t *)&slabs_common()->draining; }

/* One of the slab's first places answers, and stays. */
static bool has_place(const struct far_slab *f, unsigned places)
{
        for (unsigned k = 0; k < places; k++) {
                const struct far_node *n = f->place[k].node;
                if (!n->lost && !(slabs_down() >> n->index & 1) &&
                    !(draining_now() >> n->index & 1))
                        return true;
        }
        return false;
}

/* Only drain_step() takes a node for drained, and while it runs no place begins to answer or to
 * stay.  But places may be added meanwhile. */
void drain_turn(void)
{
        struct seat *s = self();
        const uint64_t before = slabs_down();
        unsigned places[SLABS];
        bool has[SLABS];

        for (unsigned i = 0; i < SLABS; i++) {
                places[i] = *(const unsigned *)&s->slab[i].places;
                has[i] = has_place(&s->slab[i], places[i]);
        }
        drain_step();
        for (unsigned i = 0; i < SLABS; i++)
                if (slabs_down() & ~before && !has[i] &&
                    places[i] == *(const unsigned *)&s->slab[i].places)
                        sched_fail("nodes %#lx are drained for process %u, but slab %u has no "
                                   "place elsewhere", (unsigned long)(slabs_down() & ~before),
                                   s->tree.self, i);
}

/* Rule 19. */
void check_written(uint64_t slot, unsigned good)
{
        const struct far_slab *f = &self()->slab[slot_slab(slot)];

        for (unsigned k = 0; good >> k; k++)
                if (good >> k & 1 && !*(const bool *)&f->place[k].node->is_drained)
                        return;
        sched_fail("process %u: a write of slot %#lx is over, but only drained nodes have the page",
                   self()->tree.self, (unsigned long)slot);
}

/* Without faults.  A page that is DUE for good, since a node does not fence, cannot be moved. */
bool is_all_drained(const struct seat *s)
{
        for (unsigned k = 0; k < NODES; k++)
                if (!nodes[k].fences)
                        return true;
        for (unsigned k = 0; k < NODES; k++)
                if (nodes[k].drained && !nodes[k].gone && !s->node[k].lost)
                        return false;
        return true;
}

/* ---- processes ---- */

void find_places(struct seat *s)
{
        load_leases(s);
        moves_look(NULL);
}

/* As far_keep(), and far_node_open() of the next program. */
void inherit_drained(struct seat *s, const bool drained[NODES])
{
        for (unsigned k = 0; k < NODES; k++)
                if (drained[k]) {
                        *(bool *)&s->node[k].is_drained = s->node[k].settled = true;
                        s->node[k].lost = true;
                }
}

/* As fork: the child has a copy of what its parent knows of its nodes. */
void inherit_nodes(struct seat *child, const struct seat *parent)
{
        for (unsigned k = 0; k < NODES; k++) {
                struct far_node *n = &child->node[k];
                const struct far_node *of = &parent->node[k];
                *(bool *)&n->asked = *(const bool *)&of->asked;
                *(bool *)&n->noted = *(const bool *)&of->noted;
                *(bool *)&n->stuck = *(const bool *)&of->stuck;
                *(bool *)&n->is_drained = *(const bool *)&of->is_drained;
        }
}

/* As slabs_is_member(). */
void note_member(struct seat *s)
{
        uint64_t drained = 0;

        load_leases(s);
        for (unsigned k = 0; k < NODES; k++)
                drained |= is_set(&s->node[k].is_drained) ? 1ull << k : 0;
        atomic_store(&slabs_common()->process[s->tree.self].drained, drained);
}

/* ---- the memory of a process ---- */

static struct drain memory[SEATS];

void drain_memory_out(unsigned seat) { memcpy(&memory[seat], &drain, sizeof(drain)); }

void drain_memory_in(unsigned seat)
{
        load_leases(&seats[seat]);
        memcpy(&drain, &memory[seat], sizeof(drain));
}

void drain_memory_reset(unsigned seat) { memset((void *)&memory[seat], 0, sizeof(memory[0])); }
