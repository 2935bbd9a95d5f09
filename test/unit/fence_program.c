/*
 * See fence_process.h: how processes and programs come to be, what programs do, and the last one,
 * which buries all others.
 */
#include <string.h>
#include "fence_process.h"

static uint64_t pids;
static bool tree_made, agent_done;
/* for the last one */
static struct { char hex[33]; uint64_t incarnation; } lease_of[NODES];
static const struct node_option option = { .origin = "" };

/* ---- new processes and programs ---- */

static void is_member(struct seat *s)
{
        for (unsigned k = 0; k < NODES; k++)
                s->p.view[k].member = head->record[s->tree.self].birth;
}

static void be_process(struct seat *s)
{
        slotmap_init(&s->map, units, slabs, s->tree.self);
        is_member(s);
        s->p.up = true;
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

static void make_process(struct seat *s, enum start how)
{
        pids++;
        s->p = (struct process){ .life = s->p.life,
                                 .seat = (unsigned)(s - seats),
                                 .alive = true,
                                 .pid = pids,
                                 .numbers = pids << 32 };
        make_tree(s);
        s->map.nslabs = 0;
        for (unsigned k = 0; k < NODES; k++) {
                s->node[k] = (struct far_node){
                        .driver = &model_driver, .option = &option, .index = k, .fences = true
                };
                s->nodes[k] = &s->node[k];
        }
        memset(&s->lease_lock, 0, sizeof(s->lease_lock));
        s->cutter = (struct cutter){ .tree = &s->tree,
                                     .nodes = s->nodes,
                                     .nnodes = chance(2) ? 1 + rnd(SLABS) : NODES,
                                     .lease_lock = &s->lease_lock };
        s->start = how;
}

/* Gives a child its parent's view of the nodes, place in the tree and files. */
static void inherit(struct seat *s, const struct seat *parent)
{
        memcpy(s->p.view, parent->p.view, sizeof(s->p.view));
        for (unsigned k = 0; k < NODES; k++) {
                memset(s->p.view[k].link, 0, sizeof(s->p.view[k].link));
                s->p.view[k].cut = NULL;
        }
        s->tree.self = parent->tree.self;
        s->tree.life = parent->tree.life;
        s->p.files = parent->p.files;
}

/* NULL: there are too many processes. */
static struct seat *start(const struct seat *parent, enum start how)
{
        for (struct seat *s = seats; s < seats + SEATS; s++) {
                if (!s->home || s->start || s->p.life.doomed)
                        continue;
                make_process(s, how);
                if (parent)
                        inherit(s, parent);
                return s;
        }
        return NULL;
}

struct child { const struct seat *at; uint64_t pid; };
static bool has_left(void *arg)
{
        const struct child *c = arg;
        return !c->at->p.alive || c->at->p.pid != c->pid || c->at->p.up;
}

static bool is_room(void) { return tree_counts()->numbers < NUMBERS - SEATS; }

static void do_fork(struct seat *s)
{
        struct tree_child c;

        if (bug != SHARED_EARLY)
                quiesce(s);
        if (!is_room() || tree_child(&s->tree, &c) != 0)
                return;
        for (unsigned i = 0; i < s->p.npages; i++)
                if (tree_share(&s->tree, c.number, &s->p.page[i].slot, 1) != 0)
                        sched_fail("process %u: slot %#lx cannot be shared", s->p.seat,
                                   (unsigned long)s->p.page[i].slot);
        struct seat *child = start(s, FORKED);
        if (child) {
                child->number = c;
                child->map.nslabs = s->map.nslabs;
                child->nshared = s->p.npages;
                memcpy(child->shared, s->p.page, sizeof(child->shared));
                met.forks++;
        }
        tree_child_left(&c);
}

static void only_has(const struct seat *s, int life)
{
        if (s->p.files != 1ull << life)
                sched_fail("process %u keeps others alive, or not itself: %#lx", s->p.seat,
                           (unsigned long)s->p.files);
}

/* No process may have buried the one in whose memory s runs. */
static void not_buried(const struct seat *s, uint64_t birth)
{
        if (head->record[s->tree.self].state != RECORD_USED ||
            head->record[s->tree.self].birth != birth)
                sched_fail("process %u runs in memory of a process that was buried", s->p.seat);
}

static void be_child(struct seat *s)
{
        uint32_t have = s->map.nslabs;
        uint64_t member = s->p.view[0].member;

        tree_be_child(&s->tree, &s->number);
        only_has(s, s->number.life);
        be_process(s);
        s->map.nslabs = have;
        for (unsigned i = 0; i < s->nshared; i++)
                believe(s, s->shared[i].slot, s->shared[i].value);
        for (unsigned k = 0; k < NODES && bug == CHILD_IS_PARENT; k++)
                s->p.view[k].member = member;
}

/* The next program of this process, in memory that is new.  Of its descriptors only the program's
 * is left. */
static void be_program(struct seat *s, const struct tree_child *next)
{
        uint64_t member = s->p.view[0].member;

        client_close(&s->p, false);
        while (s->p.npages)
                forget(s, s->p.npages - 1);
        make_tree(s);
        s->p.files &= 1ull << next->life;
        memset(&s->cutter.lock, 0, sizeof(s->cutter.lock));
        s->cutter.next = 0;
        for (unsigned k = 0; k < NODES; k++)
                for (unsigned l = 0; l < LINKS && bug != SUCCESSOR_IS_OLD; l++)
                        s->p.view[k].link[l].generation = 0;
        crash_point();                  /* it joins late, at its first lease */
        tree_be_child(&s->tree, next);
        only_has(s, next->life);
        be_process(s);
        for (unsigned k = 0; k < NODES && bug == SUCCESSOR_IS_OLD; k++)
                s->p.view[k].member = member;
}

static void do_exec(struct seat *s)
{
        struct tree_child next = { .life = -1 };
        bool natively = chance(4);      /* that fails, for a file that is none */

        if (!natively && (!is_room() || tree_child(&s->tree, &next) != 0))
                return;
        if (bug != STILL_EARLY)
                quiesce(s);
        tree_leaves(&s->tree, true);
        crash_point();
        if (natively || chance(4)) {    /* execve has failed */
                tree_leaves(&s->tree, false);
                tree_child_left(&next);
                return;
        }
        met.execs++;
        be_program(s, &next);
}

/* vfork, and a child that executes a program. */
static void do_spawn(struct seat *s)
{
        int number = is_room() ? tree_expect(&s->tree) : -1;

        if (number < 0)
                return;
        struct seat *child = start(s, EXECUTED);
        if (child) {
                child->expected = number;
                wait_until(has_left, &(struct child){ child, child->p.pid });
        }
        tree_expect_end(&s->tree, number);
}

static void be_spawned(struct seat *s)
{
        uint64_t birth = head->record[s->tree.self].birth;

        crash_point();
        not_buried(s, birth);
        struct tree_child next = tree_expected(&s->tree, s->expected);
        crash_point();
        not_buried(s, birth);
        if (chance(4)) {                /* execve has failed */
                tree_child_left(&next);
                process_kill(&s->p);
                crash_point();
        }
        s->p.up = true;                 /* the parent continues */
        met.execs++;
        be_program(s, &next);
}

static bool is_open(void *arg)
{
        const struct seat *s = arg;

        for (unsigned k = 0; k < NODES; k++)
                if (!s->p.view[k].incarnation)
                        return false;
        return true;
}

static void be_first(struct seat *s)
{
        for (unsigned k = 0; k < NODES; k++)
                s->p.view[k].member = 1;
        s->p.attached = true;
        wait_until(is_open, s);
        for (unsigned k = 0; k < NODES; k++) {
                memcpy(lease_of[k].hex, s->p.view[k].hex, sizeof(lease_of[k].hex));
                lease_of[k].incarnation = s->p.view[k].incarnation;
        }
        tree_made = true;
        tree_join(&s->tree);
        be_process(s);
}

/* ---- programs ---- */

static void nap(unsigned ms) { wait_until_ms(never, NULL, clock_ms + rnd(ms)); }

static void live(struct seat *s)
{
        unsigned i = s->p.npages ? rnd(s->p.npages) : 0;
        bool page = s->p.npages && !s->p.page[i].busy;

        switch (rnd(26)) {
        case 0: case 1: case 2: case 3: case 4:
                write_new(s);
                break;
        case 5: case 6: case 7:
                if (s->p.npages && (page || bug == FREED_EARLY))
                        let_go(s, i);
                break;
        case 8: case 9: case 10: case 11:
                if (page)
                        write_back(s, i);
                break;
        case 12: case 13: case 14: case 15: case 16: case 17: case 18:
                if (page)
                        read_page(s, i);
                break;
        case 19: case 20:
                find_room(s);
                break;
        case 21: case 22: case 23:
                do_fork(s);
                break;
        case 24:
                if (chance(2))
                        do_spawn(s);
                else
                        do_exec(s);
                break;
        case 25:
                if (chance(4))
                        end_in_order(s);
        }
        if (chance(2))
                nap(12);
}

static bool any_dead(void)
{
        for (uint32_t p = 0; p < tree_counts()->numbers; p++)
                if (head->record[p].state == RECORD_DEAD)
                        return true;
        return false;
}

/* No more faults: all that it holds can be read, and if there is room it can write. */
static void be_content(struct seat *s)
{
        struct page *g;

        quiesce(s);
        for (unsigned i = 0; i < s->p.npages; i++) {
                read_page(s, i);
                quiesce(s);
        }
        while (!(g = take_slot(s)) && !next_is_lost(s) && (any_dead() || s->map.nslabs < SLABS)) {
                find_room(s);
                nap(20);
        }
        if (g) {
                write_page(s, g);
                quiesce(s);
                read_page(s, (unsigned)(g - s->p.page));
                quiesce(s);
        }
        s->p.content = true;
        wait_until(never, NULL);
}

static void bury_all(struct seat *s)
{
        for (unsigned k = 0; k < NODES; k++) {
                memcpy(s->p.view[k].hex, lease_of[k].hex, sizeof(lease_of[k].hex));
                s->p.view[k].incarnation = lease_of[k].incarnation;
        }
        tree_join(&s->tree);
        be_process(s);
        s->map.nslabs = head->nslabs;   /* it only buries */
        for (bool alone = false; !alone; nap(20)) {
                find_room(s);
                tree_lock(&s->tree);
                alone = tree_alone_locked(&s->tree);
                tree_unlock(&s->tree);
        }
        client_close(&s->p, false);
        agent_done = true;
        wait_until(never, NULL);
}

static bool is_started(void *arg) { return ((struct seat *)arg)->start || phase == OVER; }

static void process_main(void *arg)
{
        struct seat *s = arg;

        setjmp(s->p.life.top);
        running = &s->p.life;
        s->p.life.doomed = false;
        s->home = true;
        wait_until(is_started, s);
        s->home = false;
        enum start how = s->start;
        s->start = NOT_STARTED;
        if (phase == OVER)
                return;
        if (phase == CHAOS && chance(4))        /* a new process may be slow to begin */
                nap(200);
        if (how == FIRST)
                be_first(s);
        else if (how == FORKED)
                be_child(s);
        else if (how == EXECUTED)
                be_spawned(s);
        else
                bury_all(s);
        while (phase == CHAOS)
                live(s);
        be_content(s);
}

/* ---- the whole ---- */

void process_reset(void)
{
        tree_reset();
        beliefs_reset();
        memset(seats, 0, sizeof(seats));
        pids = 0;
        tree_made = agent_done = false;
}

void process_spawn(void)
{
        for (struct seat *s = seats; s < seats + SEATS; s++) {
                s->home = true;
                sched_spawn(process_main, s);
        }
        start(NULL, FIRST);
}

bool process_waits(void)
{
        for (const struct seat *s = seats; s < seats + SEATS; s++)
                if (s->p.alive && s->cutter.next > clock_ms)
                        return true;
        return false;
}

bool process_has_tree(void) { return tree_made; }
bool process_start_agent(void) { return tree_made && start(NULL, AGENT); }
bool process_agent_done(void) { return agent_done; }

const char *process_left_over(void)
{
        if (!tree_made)
                return NULL;
        for (unsigned i = 0; i < SLABS * PAGES; i++)
                if (tree_map(units, i / PAGES)->word[i % PAGES] != SLOT_FREE)
                        return "a slot leaked";
        return NULL;
}
