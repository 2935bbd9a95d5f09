/*
 * See fence_process.h: what a process believes to hold, how it takes and uses slots, and its death.
 *
 * Its belief, and the pages that it wrote, are kept apart from the code under test.
 */
#include <string.h>
#include "fence_process.h"

struct seat seats[SEATS];
static unsigned holders[SLABS * PAGES];         /* believed, by slot */
static uint32_t newest[SLABS * PAGES];          /* page that arrived, by slot */
static uint32_t writes;

struct process *process_at(unsigned i) { return &seats[i].p; }
unsigned process_slabs(const struct process *p) { return ((const struct seat *)p)->map.nslabs; }

void beliefs_reset(void)
{
        memset(holders, 0, sizeof(holders));
        memset(newest, 0, sizeof(newest));
        writes = 0;
}

/* ---- what a process believes ---- */

struct page *believe(struct seat *s, uint64_t slot, uint64_t value)
{
        struct page *g = &s->p.page[s->p.npages++];

        *g = (struct page){ .slot = slot, .value = value };
        holders[index_of(slot)]++;
        return g;
}

/* Transfers know pages by their index. */
void forget(struct seat *s, unsigned i)
{
        struct process *p = &s->p;
        unsigned last = --p->npages;

        holders[index_of(p->page[i].slot)]--;
        p->page[i] = p->page[last];
        for (unsigned k = 0; k < NODES; k++)
                for (unsigned l = 0; l < LINKS; l++)
                        for (unsigned j = 0; j < DEPTH; j++) {
                                struct transfer *t = &p->view[k].link[l].t[j];
                                t->page = t->page == i      ? UINT32_MAX
                                          : t->page == last ? i
                                                            : t->page;
                        }
}

void page_arrives(unsigned node, uint32_t slot, uint64_t value)
{
        uint32_t *known = &newest[node * PAGES + slot];

        if ((uint32_t)value < *known)
                sched_fail("page %u arrives in slot %u of node %u, over page %u", (unsigned)value,
                           slot, node, *known);
        *known = (uint32_t)value;
}

void process_done(struct process *p, const struct transfer *t, uint64_t value)
{
        if (t->page == UINT32_MAX)      /* FREED_EARLY */
                return;
        struct page *g = &p->page[t->page];
        g->busy = false;
        met.reads += t->kind == READ;
        met.writes += t->kind == WRITE;
        if (t->kind == READ && value != g->value)
                sched_fail("process %u read page %u from slot %#lx, not %u", p->seat,
                           (unsigned)value, (unsigned long)g->slot, (unsigned)g->value);
}

/* ---- the end of a process ---- */

void process_kill(struct process *p)
{
        struct seat *s = (struct seat *)p;
        struct model_lock *l = (struct model_lock *)&tree_mutex;

        if (!p->alive)
                return;
        if (l->owner == &p->life)       /* robust; nothing under it needs to be mended here */
                l->owner = NULL;
        p->files = 0;
        client_close(p, false);
        while (p->npages)
                forget(s, p->npages - 1);
        p->alive = p->up = p->ending = p->life.stopped = false;
        p->life.doomed = true;
        s->start = NOT_STARTED;
}

/* Ends the program with a message, if it used the node.  The agent, which buries all at last, has
 * no program. */
void process_loses(struct process *p, unsigned node)
{
        p->view[node].lost = true;
        if (process_slabs(p) > node && phase != END)
                process_kill(p);
}

static bool lives_beside(const struct seat *me)
{
        for (const struct seat *s = seats; s < seats + SEATS; s++)
                if (s != me && s->p.alive && (s->p.up || s->tree.life >= 0) && !s->p.ending)
                        return true;
        return false;
}

static bool is_idle(void *arg) { return client_idle(arg); }
void quiesce(struct seat *s) { wait_until(is_idle, &s->p); }

void end_in_order(struct seat *s)
{
        bool still = chance(2);

        if (still && bug != STILL_EARLY)
                quiesce(s);
        s->p.ending = true;
        bool last = tree_leave(&s->tree, still, 500);
        if (last && lives_beside(s))
                sched_fail("process %u takes itself for the last one", s->p.seat);
        client_close(&s->p, last);
        process_kill(&s->p);
        crash_point();
}

/* ---- slots ---- */

struct page *take_slot(struct seat *s)
{
        uint64_t slot = s->p.npages < SLABS * PAGES ? slotmap_take(&s->map, chance(2)) : SLOT_NONE;

        if (slot == SLOT_NONE)
                return NULL;
        if (holders[index_of(slot)])
                sched_fail("process %u: slot %#lx was handed out, but has %u holders", s->p.seat,
                           (unsigned long)slot, holders[index_of(slot)]);
        return believe(s, slot, 0);
}

/* The node of the next slab that it would use. */
bool next_is_lost(const struct seat *s)
{
        return s->map.nslabs < SLABS && s->p.view[s->map.nslabs].lost;
}

/* A node that another process has found may not be known, or may not answer this one. */
static void learn(struct seat *s)
{
        if (phase != CHAOS || chance(4))
                s->cutter.nnodes = NODES;
        met.cuts_blind += s->cutter.nnodes < head->nslabs;
}

/* As far_lease(). */
void find_room(struct seat *s)
{
        struct tree *t = &s->tree;

        if (s->map.nslabs < head->nslabs) {
                if (next_is_lost(s))
                        return;
                s->p.attached = true;
                s->map.nslabs++;
                return;
        }
        tree_lock(t);
        uint64_t freed = tree_mend_locked(t);
        bool uncut = !freed && tree_uncut_locked(t, true);
        tree_unlock(t);
        if (uncut)
                learn(s);
        if (freed || (uncut && cut_dead(&s->cutter, NULL)))
                return;
        tree_lock(t);
        uint32_t i = head->nslabs;
        if (i == s->map.nslabs && i < SLABS && !next_is_lost(s)) {
                head->slab[i] = (struct tree_slab){ .kind = SLAB_REMOTE, .places = 1 };
                head->slab[i].place[0].node = i;
                head->nslabs++;
                s->map.nslabs++;
                s->p.attached = true;
        }
        tree_unlock(t);
}

void write_page(struct seat *s, struct page *g)
{
        writes++;
        g->value = (uint64_t)~writes << 32 | writes;
        g->busy = true;
        client_post(&s->p, WRITE, (uint32_t)(g - s->p.page), g->slot, g->value);
}

void let_go(struct seat *s, unsigned i)
{
        uint64_t slot = s->p.page[i].slot;

        /* a process that is killed from here on would not use it any more */
        forget(s, i);
        if (!slotmap_put(&s->map, slot) && tree_release(&s->tree, &slot, 1) != 0)
                sched_fail("process %u: slot %#lx cannot be released", s->p.seat,
                           (unsigned long)slot);
}

void write_new(struct seat *s)
{
        struct page *g = take_slot(s);

        if (!g) {
                find_room(s);
        } else if (client_can(&s->p, WRITE, g->slot)) {
                write_page(s, g);
        } else {
                let_go(s, (unsigned)(g - s->p.page));
        }
}

void write_back(struct seat *s, unsigned i)
{
        struct page *g = &s->p.page[i];

        if (!slotmap_writable(&s->map, g->slot)) {
                write_new(s);
                let_go(s, i);
        } else if (client_can(&s->p, WRITE, g->slot)) {
                if (holders[index_of(g->slot)] != 1)
                        sched_fail("process %u: slot %#lx is writable, but has other holders",
                                   s->p.seat, (unsigned long)g->slot);
                write_page(s, g);
        }
}

void read_page(struct seat *s, unsigned i)
{
        struct page *g = &s->p.page[i];

        if (!client_can(&s->p, READ, g->slot))
                return;
        g->busy = true;
        client_post(&s->p, READ, i, g->slot, 0);
}
