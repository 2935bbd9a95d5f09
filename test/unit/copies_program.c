/*
 * See copies_model.h: how processes and programs come to be, what programs do, and the last one,
 * which buries all others.
 */
#include <string.h>
#include "base/options.h"
#include "far/drain.h"
#include "far/held.h"
#include "copies_model.h"

bool agent_done;
static uint64_t pids;
static struct node_option options[NODES];       /* of all processes */

static void end_in_order(struct seat *s)
{
        bool still = chance(2);

        if (still && bug != STILL_EARLY) {
                quiesce(s);
                still = held_stop();
        }
        tree_leave(&s->tree, still, 500);
        if (still)
                check_still(s);
        met.ends++;
        process_kill(s);
        crash_point();
}

/* ---- new processes and programs ---- */

static void make_nodes(struct seat *s)
{
        memset(s->view, 0, sizeof(s->view));
        net_forget(s);
        for (unsigned k = 0; k < NODES; k++) {
                s->node[k] = (struct far_node){ .driver = &model_driver,
                                                .option = &options[k],
                                                .index = k,
                                                .fences = nodes[k].fences || bug == SAYS_IT_FENCES,
                                                .hands_back = opt.replicas > 1,
                                                .up = opt.replicas < 2 };
                s->nodes[k] = &s->node[k];
        }
        for (unsigned i = 0; i < SLABS; i++) {
                const struct tree_slab *t = &head->slab[i];
                s->slab[i] = (struct far_slab){ .places = t->places };
                for (unsigned k = 0; k < t->places; k++)
                        s->slab[i].place[k] =
                                (struct far_place){ .node = &s->node[t->place[k].node] };
        }
        s->cutter = (struct cutter){ .tree = &s->tree,
                                     .nodes = s->nodes,
                                     .nnodes = NODES,
                                     .lease_lock = &s->lease_lock };
        memory_reset(s);
}

/* In memory that is new. */
static void make_tree(struct seat *s)
{
        s->tree = (struct tree){ .fd = 1,
                                 .life = -1,
                                 .self = TREE_PROCESSES,
                                 .head = head,
                                 .units = units,
                                 .bits = bits };
}

static struct seat *start(enum start how)
{
        for (struct seat *s = seats; s < seats + SEATS; s++) {
                if (!s->program.home || !s->side.home || s->alive || s->program.doomed)
                        continue;
                s->alive = true;
                s->up = s->content = false;
                s->late = chance(2);
                s->pid = ++pids;
                s->parent = NULL;
                memset(s->page, 0, sizeof(s->page));
                make_tree(s);
                make_nodes(s);
                s->start = how;
                return s;
        }
        return NULL;
}

bool process_start(enum start how) { return start(how) != NULL; }

static void be_process(struct seat *s)
{
        slotmap_init(&s->map, units, slabs, s->tree.self);
        s->map.nslabs = SLABS;
        if (bug != CHILD_IS_PARENT || s->start != FORKED)
                s->number = s->tree.self;
        note_member(s);
        s->up = s->attached = true;
}

struct child { const struct seat *at; uint64_t pid; };
static bool is_up(void *arg)
{
        const struct child *c = arg;
        return !c->at->alive || c->at->pid != c->pid || c->at->up;
}

static bool expect(struct seat *s, struct tree_child *c)
{
        return ((struct tree_common *)units)->numbers < NUMBERS - SEATS &&
               tree_child(&s->tree, c) == 0;
}

/* fork; or vfork, and a child that executes a program. */
static void do_fork(struct seat *s, enum start how)
{
        struct tree_child c;

        quiesce(s);
        if (!expect(s, &c))
                return;
        pause_repairs(s);
        for (struct page *g = s->page; how == FORKED && g < s->page + HELD; g++)
                if (g->state && tree_share(&s->tree, c.number, &g->slot, 1) != 0)
                        sched_fail("process %u: slot %#lx cannot be shared", s->tree.self,
                                   (unsigned long)g->slot);
        check_still(s);
        struct seat *child = start(how);
        if (child) {
                struct child w = { child, child->pid };
                child->child = c;
                child->number = s->number;
                child->parent = s;
                child->parent_pid = s->pid;
                child->files = s->files;
                child->tree.life = s->tree.life;
                child->tree.self = s->tree.self;
                if (how == FORKED)
                        inherit_nodes(child, s);
                for (unsigned i = 0; how == FORKED && i < HELD; i++)
                        child->page[i] = (struct page){ .slot = s->page[i].slot,
                                                        .value = s->page[i].value,
                                                        .inherited = s->page[i].state };
                met.forks++;
                held_go_on();
                if (how == EXECUTED)
                        wait_until(is_up, &w);
        }
        held_go_on();
        tree_child_left(&c);
}

static void be_child(struct seat *s)
{
        tree_be_child(&s->tree, &s->child);
        drain_forked();
        be_process(s);
        for (struct page *g = s->page; g < s->page + HELD; g++)
                if (g->inherited) {
                        hold(g, g->slot);
                        g->state = HELD_STILL;
                        g->inherited = false;
                }
}

static bool side_is_home(void *arg) { return ((struct seat *)arg)->side.home; }

static void do_exec(struct seat *s)
{
        struct tree_child next;
        bool drained[NODES];

        if (!expect(s, &next))
                return;
        quiesce(s);
        bool still = held_stop();
        tree_leaves(&s->tree, still);
        crash_point();
        if (still)
                check_still(s);
        if (chance(4)) {                /* execve has failed */
                tree_leaves(&s->tree, false);
                held_go_on();
                tree_child_left(&next);
                return;
        }
        met.execs++;
        repairs_die(s);
        s->attached = s->up = false;
        s->side.doomed = !s->side.home;
        for (struct page *g = s->page; g < s->page + HELD; g++)
                forget(g);
        net_orphan(s);
        make_tree(s);
        s->files = 1ull << next.life;   /* all others are closed at execve */
        wait_until(side_is_home, s);
        for (unsigned k = 0; k < NODES; k++)
                drained[k] = *(bool *)&s->node[k].is_drained;
        make_nodes(s);
        inherit_drained(s, drained);
        tree_be_child(&s->tree, &next);
        be_process(s);
}

/* ---- programs ---- */

/* Just while it is copied. */
static void let_copied_go(struct seat *s)
{
        for (struct page *g = s->page; g < s->page + HELD; g++)
                if (g->state == HELD_STILL && *(uint16_t *)slot_word(units, g->slot) ==
                                                      (SLOT_OWNED | SLOT_DUE | s->tree.self)) {
                        let_go(s, g);
                        return;
                }
}

static void live(struct seat *s)
{
        struct page *g = &s->page[rnd(HELD)];
        unsigned what = rnd(26);

        settle_all(s);
        if (g->state == HELD_STILL) {
                if (what < 6)
                        ask(s, g, false);
                else if (what < 14)
                        write_back(s, g);
                else if (what < 18)
                        let_go(s, g);
        } else if (g->state == UNUSED && what < 10) {
                write_new(s);
        } else if (g->state == WRITES && what < 6 && bug == FREED_EARLY && !g->asked) {
                let_go(s, g);
        }
        if (what >= 18 && what < 20)
                find_room(s);
        else if (what == 20)
                do_fork(s, chance(4) ? EXECUTED : FORKED);
        else if (what == 21 && chance(2))
                do_exec(s);
        else if (what == 22 && chance(6))
                end_in_order(s);
        else if (what == 23)
                find_places(s);
        else if (what >= 24)
                let_copied_go(s);
        nap(chance(4) ? 200 : 20);
}

static bool phase_changes(void *arg) { return phase != *(enum phase *)arg; }

/* It reads all that it holds, and writes all that it can. */
static void take_stock(struct seat *s)
{
        quiesce(s);
        for (struct page *g = s->page; g < s->page + HELD; g++)
                if (g->state == HELD_STILL)
                        ask(s, g, false);
        quiesce(s);
        for (struct page *g = s->page; g < s->page + HELD; g++)
                if (g->state == HELD_STILL && slotmap_writable(&s->map, g->slot))
                        ask(s, g, true);
        quiesce(s);
}

/* And all nodes that are there know it. */
static bool is_alone(struct seat *s)
{
        uint64_t uncut = *(uint64_t *)&((struct tree_common *)units)->uncut;

        for (unsigned k = 0; k < NODES; k++)
                uncut &= ~((uint64_t)(s->node[k].lost || nodes[k].gone) << k);
        tree_lock(&s->tree);
        bool alone = tree_alone_locked(&s->tree) && !uncut;
        tree_unlock(&s->tree);
        return alone;
}

/* Draining nodes get no copies. */
static bool is_wanted_at(const struct far_node *n)
{
        return !n->lost && !(*(uint64_t *)&((struct tree_common *)units)->draining >> n->index & 1);
}

static void check_slot(struct seat *s, unsigned i)
{
        uint64_t slot = (uint64_t)(i / PAGES) << SLAB_SHIFT | i % PAGES;
        uint16_t word = *(uint16_t *)slot_word(units, slot);
        const struct far_slab *f = &s->slab[i / PAGES];
        bool due = word & SLOT_DUE, any = abandoned[i];

        for (unsigned k = 0; k < f->places; k++)
                any |= !nodes[f->place[k].node->index].fences;
        if ((due && !any) || (!due && word != (SLOT_OWNED | s->tree.self)))
                sched_fail("in the end slot %#lx has the word %#x", (unsigned long)slot, word);
        for (unsigned k = 0; !due && k < f->places; k++)
                if (is_wanted_at(f->place[k].node) && !is_good_at(slot, k))
                        sched_fail("in the end slot %#lx is missing at place %u",
                                   (unsigned long)slot, k);
}

/* This process, the only one left, has cleared `copied`: no process wants copies. */
static bool is_said(void *arg)
{
        (void)arg;
        return !*(uint32_t *)&((struct tree_common *)units)->copied;
}

static bool all_up(void *arg)
{
        const struct seat *s = arg;

        for (unsigned k = 0; k < NODES; k++)
                if (!s->node[k].lost && !*(const bool *)&s->node[k].up)
                        return false;
        return true;
}

static bool is_there(const struct far_slab *f, uint64_t slot)
{
        for (unsigned k = 0; k < *(const unsigned *)&f->places; k++)
                if (!f->place[k].node->lost && is_good_at(slot, k))
                        return true;
        return false;
}

/* Each page of the process is everywhere where it can be copied to, or lost, which the process sees
 * when it reads.  A slot that is DUE for good, since a node that does not fence may still get a
 * write, is not copied. */
static bool is_repaired(void *arg)
{
        struct seat *s = arg;

        for (const struct page *g = s->page; g < s->page + HELD; g++) {
                const struct far_slab *f = &s->slab[slot_slab(g->slot)];
                bool due = *(uint16_t *)slot_word(units, g->slot) & SLOT_DUE;
                bool copied = g->state && !due && is_there(f, g->slot);
                for (unsigned k = 0; copied && k < *(const unsigned *)&f->places; k++)
                        if (is_wanted_at(f->place[k].node) && f->place[k].node->fences &&
                            !is_good_at(g->slot, k))
                                return false;
        }
        return true;
}

/* Of the last process: takes and writes every slot. */
static void take_all(struct seat *s)
{
        quiesce(s);
        while (!is_alone(s)) {
                find_room(s);
                find_places(s);
                nap(500);
        }
        wait_until(is_repaired, s);     /* also the slots that it shared with dead processes */
        pause_repairs(s);               /* a slot that is being copied cannot be written */
        for (struct page *g = s->page; g < s->page + HELD; g++)
                if (g->state && !slotmap_writable(&s->map, g->slot))
                        let_go(s, g);
        for (unsigned i = 0; i < SLOTS; i++) {
                struct page *g = take_slot(s);
                if (g)
                        ask(s, g, true);
        }
        held_go_on();
        quiesce(s);
        find_places(s);
        wait_until(is_repaired, s);
        wait_until(is_said, s);
        for (; !is_all_drained(s); nap(500))
                find_places(s);
        pause_repairs(s);               /* also nodes that are not repaired have all then */
        uint64_t before;
        do {                            /* until nothing has come between */
                wait_until(all_up, s);
                before = met.places + met.downs;
                take_stock(s);
        } while (!all_up(s) || before != met.places + met.downs);
        for (unsigned i = 0; i < SLOTS; i++)
                check_slot(s, i);
        for (uint32_t p = 0; p < NUMBERS; p++)
                if (*(uint64_t *)&((struct tree_common *)units)->process[p].unfenced &&
                    p != s->tree.self)
                        sched_fail("in the end writes of process %u still threaten a node", p);
        agent_done = true;
}

static bool is_started(void *arg) { return phase == OVER || ((struct seat *)arg)->start; }

static void program_main(void *arg)
{
        struct seat *volatile s = arg;

        while (phase != OVER) {
                running = &s->program;
                setjmp(s->program.top);
                s->program.home = true;
                wait_until(is_started, s);
                s->program.home = false;
                if (phase == OVER)
                        break;
                if (s->start == FIRST || s->start == AGENT) {
                        tree_join(&s->tree);
                        be_process(s);
                } else {
                        be_child(s);
                }
                while (phase == CHAOS)
                        live(s);
                enum phase calm = CALM;
                if (phase == CALM) {
                        take_stock(s);
                        s->content = true;
                        wait_until(phase_changes, &calm);
                }
                if (phase == END)
                        take_all(s);
                s->start = NOT_STARTED;
        }
}

static bool is_attached(void *arg) { return phase == OVER || ((struct seat *)arg)->attached; }

static void side_main(void *arg)
{
        struct seat *volatile s = arg;

        while (phase != OVER) {
                running = &s->side;
                setjmp(s->side.top);
                s->side.home = true;
                wait_until(is_attached, s);
                s->side.home = false;
                while (s->attached)
                        side_step();
        }
}

void process_reset(void)
{
        memset(seats, 0, sizeof(seats));
        beliefs_reset();
        pids = 0;
        agent_done = false;
        running = NULL;
        for (unsigned k = 0; k < NODES; k++)
                options[k] = (struct node_option){
                        .origin = "", .priority = chance(4) ? rnd(2) : 0
                };
        for (struct seat *s = seats; s < seats + SEATS; s++) {
                s->program.seat = s->side.seat = s;
                s->side.io = s->side.home = s->program.home = true;
        }
}

void process_spawn(void)
{
        for (struct seat *s = seats; s < seats + SEATS; s++) {
                sched_spawn(program_main, s);
                sched_spawn(side_main, s);
        }
}
