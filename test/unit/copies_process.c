/*
 * See copies_model.h: lives, what a process believes to hold, how it uses slots, and its death.
 *
 * Its belief, and the pages that it wrote, are kept apart from the code under test.
 */
#include <string.h>
#include "common/clock.h"
#include "far/drain.h"
#include "far/held.h"
#include "copies_model.h"

struct seat seats[SEATS];
struct life *running;
int64_t clock_ms;
bool abandoned[SLOTS];
uint64_t place_added;
static unsigned holders[SLOTS];         /* believed, by slot */
static uint64_t writes;

void beliefs_reset(void)
{
        memset(holders, 0, sizeof(holders));
        memset(abandoned, 0, sizeof(abandoned));
        writes = 0;
}

int64_t now_ms(void) { return clock_ms; }

/* ---- lives ---- */

static bool life_ready(void *arg)
{
        struct life *me = arg;
        return me->doomed || (!me->seat->stopped && me->ready(me->waits_for));
}

static void look(struct life *me)
{
        running = me;
        if (!me)
                return;
        memory_of(me->seat);
        if (!me->doomed)
                return;
        me->doomed = false;
        longjmp(me->top, 1);
}

static bool always(void *arg) { (void)arg; return true; }

void wait_until(bool (*ready)(void *), void *arg)
{
        struct life *me = running;

        me->ready = ready;
        me->waits_for = arg;
        do {
                sched_wait(life_ready, me);
                look(me);
        } while (!life_ready(me));
}

void crash_point(void)
{
        struct life *me = running;

        point();                        /* others may run meanwhile */
        look(me);
        if (me && me->seat->stopped)
                wait_until(always, NULL);
}

/* ---- what a process believes ---- */

void hold(struct page *g, uint64_t slot)
{
        g->slot = slot;
        g->state = EMPTY;
        holders[index_of(slot)]++;
}

void forget(struct page *g)
{
        if (g->state != UNUSED)
                holders[index_of(g->slot)]--;
        g->state = UNUSED;
}

static bool is_over(const struct page *g)
{
        return (g->state != READS && g->state != WRITES) ||
               *(const uint32_t *)&g->entry.state >= IO_OVER;
}

/* Of a write: it is over, and did not fail. */
static bool is_there(const struct page *g) { return *(const uint32_t *)&g->entry.state == IO_OVER; }

static void settle(struct seat *s, struct page *g)
{
        bool lost = *(uint32_t *)&g->entry.state == IO_LOST;

        if (g->state == WRITES && lost) {
                /* As kern: the page is in its frame still, and goes to another slot. */
                met.refused++;
                if (slotmap_writable(&s->map, g->slot))
                        sched_fail("process %u: a write to slot %#lx has failed, but it is not DUE",
                                   s->tree.self, (unsigned long)g->slot);
                let_go(s, g);
                return;
        }
        if (g->state == WRITES) {
                met.writes++;
                unsigned right = 0;
                for (unsigned k = 0; k < s->slab[0].places; k++)
                        right += is_good_at(g->slot, k);
                met.one_copy += right == 1;
        } else if (g->state == READS) {
                met.reads++;
                if (lost || g->bounce != g->value)
                        sched_fail("process %u read page %lu from slot %#lx, not %lu%s",
                                   s->tree.self, (unsigned long)g->bounce, (unsigned long)g->slot,
                                   (unsigned long)g->value, lost ? ": it is damaged" : "");
        }
        if (g->state == READS || g->state == WRITES)
                g->state = HELD_STILL;
}

void settle_all(struct seat *s)
{
        for (struct page *g = s->page; g < s->page + HELD; g++)
                if (is_over(g))
                        settle(s, g);
}

bool all_over(void *arg)
{
        const struct seat *s = arg;

        for (const struct page *g = s->page; g < s->page + HELD; g++)
                if (!is_over(g))
                        return false;
        return true;
}

void check_copies(void)
{
        for (struct seat *s = seats; s < seats + SEATS; s++)
                for (struct page *g = s->page; s->alive && g < s->page + HELD; g++) {
                        const struct tree_slab *t = &head->slab[slot_slab(g->slot)];
                        bool any = g->state <= EMPTY || (g->state == WRITES && !is_there(g));
                        if (any)
                                continue;
                        for (unsigned k = 0; k < t->places; k++) {
                                const struct node *n = &nodes[t->place[k].node];
                                if (!is_good_at(g->slot, k))
                                        continue;
                                any = true;
                                if (!n->gone && n->value[index_of(g->slot)] != g->value)
                                        sched_fail("slot %#lx of process %u: the copy at place %u "
                                                   "is page %lu, not %lu, and counts as good",
                                                   (unsigned long)g->slot, s->tree.self, k,
                                                   (unsigned long)n->value[index_of(g->slot)],
                                                   (unsigned long)g->value);
                        }
                        if (!any)
                                sched_fail("slot %#lx of process %u: no copy is good",
                                           (unsigned long)g->slot, s->tree.self);
                }
}

/* Also of a child that is not up yet. */
static const struct page *only_there(const struct seat *o, unsigned node)
{
        for (const struct page *g = o->page; g < o->page + HELD; g++) {
                const struct tree_slab *t = &head->slab[slot_slab(g->slot)];
                bool there = false, elsewhere = g->state <= EMPTY && !g->inherited;
                elsewhere |= g->state == WRITES && !is_there(g);
                for (unsigned k = 0; !elsewhere && k < t->places; k++) {
                        unsigned at = t->place[k].node;
                        bool good = is_good_at(g->slot, k);
                        there |= good && at == node;
                        elsewhere = good && at != node && !*(const bool *)&o->node[at].is_drained;
                }
                if (there && !elsewhere)
                        return g;
        }
        return NULL;
}

/* When s has answered: for o itself, or for a parent, which answers after it has seen its child. */
static bool is_waited_for(const struct seat *o, const struct seat *s, unsigned node)
{
        while (o != s && !(o->view[node].known && !o->view[node].answered)) {
                const struct seat *parent = o->parent;
                if (!parent || !parent->alive || parent->pid != o->parent_pid)
                        return false;
                o = parent;
        }
        return o != s;
}

void check_answer(const struct seat *s, unsigned node)
{
        for (const struct seat *o = seats; o < seats + SEATS; o++) {
                const struct page *g = o->alive ? only_there(o, node) : NULL;
                if (g && !is_waited_for(o, s, node))
                        sched_fail("process %u answers node %u, where alone page %lu of process %u "
                                   "is, in slot %#lx", s->tree.self, node,
                                   (unsigned long)g->value, o->tree.self, (unsigned long)g->slot);
        }
}

/* ---- slots and pages ---- */

struct page *take_slot(struct seat *s)
{
        struct page *g = s->page;

        while (g < s->page + HELD && g->state != UNUSED)
                g++;
        uint64_t slot = g < s->page + HELD ? slotmap_take(&s->map, chance(2)) : SLOT_NONE;
        if (slot == SLOT_NONE)
                return NULL;
        if (holders[index_of(slot)])
                sched_fail("process %u: slot %#lx was handed out, but has %u holders",
                           s->tree.self, (unsigned long)slot, holders[index_of(slot)]);
        hold(g, slot);
        return g;
}

void ask(struct seat *s, struct page *g, bool write)
{
        uint32_t i = (uint32_t)(g - s->page);

        g->entry = (struct io_entry){ .op = write ? IO_WRITE : IO_PART,
                                      .frame = write ? i : HELD + i,
                                      .len = sizeof(g->bounce),
                                      .slot = g->slot };
        if (write)
                g->frame = g->value = ++writes;
        g->state = write ? WRITES : READS;
        g->asked = true;
}

/* As far_lease(): the dead are buried. */
void find_room(struct seat *s)
{
        struct tree *t = &s->tree;

        tree_lock(t);
        bool uncut = !tree_mend_locked(t) && tree_uncut_locked(t, true);
        tree_unlock(t);
        /* A node that another process has found may not be known yet. */
        s->cutter.nnodes = phase == CHAOS && chance(2) ? 1 + rnd(NODES - 1) : NODES;
        if (uncut)
                cut_dead(&s->cutter, NULL);
}

void let_go(struct seat *s, struct page *g)
{
        uint64_t slot = g->slot;

        /* a process that is killed from here on would not use it any more */
        forget(g);
        if (!slotmap_put(&s->map, slot) && held_release(&slot, 1) != 0)
                sched_fail("process %u: slot %#lx cannot be released", s->tree.self,
                           (unsigned long)slot);
}

static bool none_under_way(void *seat) { return !repairs_of(seat); }

void pause_repairs(struct seat *s)
{
        held_stop();
        wait_until(none_under_way, s);
}

bool write_new(struct seat *s)
{
        struct page *g = take_slot(s);

        if (g)
                ask(s, g, true);
        else
                find_room(s);
        return g;
}

void write_back(struct seat *s, struct page *g)
{
        if (slotmap_writable(&s->map, g->slot)) {
                if (holders[index_of(g->slot)] != 1)
                        sched_fail("process %u: slot %#lx is writable, but has other holders",
                                   s->tree.self, (unsigned long)g->slot);
                ask(s, g, true);
        } else {
                met.due += !(*(uint16_t *)slot_word(units, g->slot) & SLOT_SHARED);
                write_new(s);
                let_go(s, g);
        }
}

static bool step_passed(void *arg) { return sched_steps >= *(uint64_t *)arg; }
void nap(unsigned steps)
{
        uint64_t until = sched_steps + rnd(steps);
        wait_until(step_passed, &until);
}

/* Waits until the process's requests are over.  When the faults are over it buries dead processes
 * meanwhile, so that their late writes threaten no page any more.  vmrun buries them only when it
 * wants their slots. */
void quiesce(struct seat *s)
{
        for (; !all_over(s); nap(100))
                if (phase != CHAOS) {
                        find_room(s);
                        find_places(s);
                }
        settle_all(s);
}

/* ---- the end of a process ---- */

void process_kill(struct seat *s)
{
        if (!s->alive)
                return;
        if (tree_owner && tree_owner->seat == s)
                tree_owner = NULL, tree_torn = true;
        repairs_die(s);
        s->held_owner = NULL;
        s->files = 0;
        net_orphan(s);
        for (struct page *g = s->page; g < s->page + HELD; g++)
                forget(g);
        s->alive = s->up = s->attached = s->stopped = false;
        s->start = NOT_STARTED;
        s->program.doomed = !s->program.home;
        s->side.doomed = !s->side.home;
}
