/*
 * See copies_model.h: memory nodes, the network, and the driver of a process, which follows the
 * rules of node.h for drivers that hand back.
 *
 * A request that was sent on a broken connection still arrives at any later time, until its node
 * has ended that connection: when it answers the member's next one, or at a CUT.  A node that does
 * not fence carries it out even then, and more than once.
 */
#include <errno.h>
#include <string.h>
#include "base/options.h"
#include "include/allocator.h"
#include "copies_model.h"

enum { FLIGHTS = 128 };
struct flight {
        bool used, write, arrived;
        bool refused;                   /* a write that the node cannot carry out */
        unsigned node, slot;
        uint64_t member, serial, value;
        uint64_t until;                 /* step: the network holds it till then, if r is NULL */
        struct seat *seat;
        struct far_request *r;          /* that waits for it; NULL: none does */
};

struct node nodes[NODES];
static struct flight flights[FLIGHTS];
static uint64_t serials;
uint32_t first_after, deaf_in, slow_in;

void node_reset(void)
{
        memset(nodes, 0, sizeof(nodes));
        memset(flights, 0, sizeof(flights));
        memset(called_over, 0, sizeof(called_over));
}

void node_restart(unsigned node)
{
        nodes[node].gone = true;
        for (struct flight *f = flights; f < flights + FLIGHTS; f++)
                if (f->used && f->node == node && !f->r)
                        f->used = false;
        for (struct seat *s = seats; s < seats + SEATS; s++)
                s->view[node].broken = true;
}

static bool has_slabs(unsigned node)
{
        for (unsigned i = 0; i < SLABS; i++)
                for (unsigned k = 0; k < head->slab[i].places; k++)
                        if (head->slab[i].place[k].node == node)
                                return true;
        return false;
}

/* With one copy of each page: each slab has another place, and processes know that this node
 * drains.  Else its end would end all of them, and the run would get no further. */
static bool can_end(unsigned node)
{
        const uint64_t draining = *(uint64_t *)&((struct tree_common *)units)->draining;

        if (opt.replicas > 1 || !has_slabs(node))
                return true;
        for (unsigned i = 0; i < SLABS; i++) {
                const struct tree_slab *t = &head->slab[i];
                bool stays = false;
                for (unsigned k = 0; k < t->places; k++)
                        stays |= t->place[k].node != node && !nodes[t->place[k].node].gone;
                if (!stays)
                        return false;
        }
        return draining >> node & 1;
}

/* Rule 17.  The node waits only a moment for a process that is not connected. */
static bool is_waited_for(const struct view *v)
{
        return v->known && !v->answered && (v->serial || sched_steps - v->broke_at < 3000);
}

void node_ends(void)
{
        for (unsigned k = 0; k < NODES; k++) {
                bool waits = !nodes[k].drained || nodes[k].gone || !can_end(k);
                for (const struct seat *s = seats; !waits && s < seats + SEATS; s++)
                        waits = s->alive && is_waited_for(&s->view[k]);
                if (!waits) {
                        met.drained++;
                        node_restart(k);
                }
        }
}

static bool reaches(const struct seat *s, unsigned node)
{
        return phase != CHAOS || (sched_steps >= nodes[node].unreachable_until &&
                                  sched_steps >= s->view[node].unreachable_until);
}

/* [C]  A page whose write was never over has no owner: the next owner of the slot may copy the page
 * from before, to the places that lack it. */
static void arrive(struct flight *f)
{
        uint64_t *known = &nodes[f->node].value[f->slot];

        if (f->write && f->value < *known && *known <= called_over[f->slot])
                sched_fail("page %lu arrives in slot %u of node %u, over page %lu",
                           (unsigned long)f->value, f->slot, f->node, (unsigned long)*known);
        met.late += f->write && !f->r;
        if (f->write && f->refused)
                ;                       /* it is not there */
        else if (f->write)
                *known = f->value;
        else
                f->value = *known;
        f->arrived = true;
}

void net_step(void)
{
        struct flight *f = &flights[rnd(FLIGHTS)];

        if (!f->used || nodes[f->node].gone)
                return;
        if (f->r) {
                if (!f->arrived && reaches(f->seat, f->node))
                        arrive(f);
                return;
        }
        if (sched_steps < f->until)
                return;
        arrive(f);
        f->used = !nodes[f->node].fences && !chance(4);
}

/* Takes the flight's request away.  A write may still arrive, later. */
static void orphan(struct flight *f)
{
        f->r = NULL;
        f->used = f->write && !nodes[f->node].gone && (!f->arrived || !nodes[f->node].fences);
        f->until = sched_steps + rnd(chance(slow_in) ? 20000 : 1000);
}

void net_orphan(const struct seat *s)
{
        for (struct flight *f = flights; f < flights + FLIGHTS; f++)
                if (f->used && f->r && f->seat == s)
                        orphan(f);
}

/* Ends the connections of members from first to last, but for the one with that serial. */
static void end_connections(unsigned node, uint64_t first, uint64_t last, uint64_t serial)
{
        for (struct flight *f = flights; f < flights + FLIGHTS; f++)
                if (f->used && !f->r && f->node == node && nodes[node].fences &&
                    f->member >= first && f->member <= last && f->serial != serial)
                        f->used = false;
}

/* ---- the driver ---- */

/* Without copies elsewhere a driver keeps unanswered requests, for its next connection. */
static struct far_request *kept[SEATS][NODES][FLIGHTS];
static unsigned nkept[SEATS][NODES];

static struct view *view_of(const struct far_node *n) { return &self()->view[n->index]; }
static uint64_t member_of(const struct seat *s) { return head->record[s->tree.self].birth; }

/* The connection is gone, and with it all its answers. */
static void hand_back(struct far_node *n, bool say)
{
        struct seat *s = self();
        struct view *v = view_of(n);

        v->broken = false;
        v->serial = 0;
        v->broke_at = sched_steps;
        met.downs++;
        if (say && n->hands_back && atomic_load(&n->up))
                far_down(n, "it broke");
        for (struct flight *f = flights; f < flights + FLIGHTS; f++) {
                struct far_request *r = f->r;
                if (!f->used || !r || f->seat != s || f->node != n->index)
                        continue;
                orphan(f);
                if (n->hands_back)
                        far_failed(r);
                else
                        kept[s - seats][n->index][nkept[s - seats][n->index]++] = r;
        }
}

void net_forget(const struct seat *s) { memset(nkept[s - seats], 0, sizeof(nkept[0])); }

static struct flight *free_flight(void)
{
        for (struct flight *f = flights; f < flights + FLIGHTS; f++)
                if (!f->used)
                        return f;
        return NULL;
}

static bool send(struct far_node *n, struct far_request *r)
{
        struct flight *f = free_flight();
        bool write = r->op == FAR_WRITE;

        if (f)
                *f = (struct flight){ .used = true, .write = write, .node = n->index,
                                      .slot = index_of(request_slot(r)),
                                      .member = member_of(self()), .serial = view_of(n)->serial,
                                      .value = write ? *(uint64_t *)r->frame : 0,
                                      .seat = self(), .r = r };
        if (f)                          /* a disk has bad places */
                f->refused = write && phase == CHAOS && !nodes[n->index].fences && chance(4);
        return f;
}

/* On the new connection; or the node is lost, and they are given back. */
static void send_kept(struct far_node *n)
{
        unsigned *left = &nkept[self() - seats][n->index];
        struct far_request **r = kept[self() - seats][n->index];

        while (*left && (n->lost || send(n, r[*left - 1]))) {
                struct far_request *sent = r[--*left];
                if (n->lost)
                        far_failed(sent);
                else
                        sent->repeated = true;
        }
}

static unsigned post(struct far_node *n, struct far_request **r, unsigned count)
{
        struct view *v = view_of(n);
        unsigned took = 0;

        for (; n->lost && took < count; took++)
                far_failed(r[took]);
        if (n->lost)
                return took;
        if (n->hands_back && (!v->serial || !n->up))
                sched_fail("a request is posted to a node that is down");
        if (!v->serial || nkept[self() - seats][n->index])
                return took;
        while (took < count && !chance(8) && send(n, r[took]))
                took++;
        if (v->broken && chance(2))
                hand_back(n, true);
        return took;
}

static void take_answers(struct far_node *n)
{
        for (struct flight *f = flights; f < flights + FLIGHTS; f++) {
                struct far_request *r = f->r;
                if (!f->used || !r || !f->arrived || f->seat != self() || f->node != n->index ||
                    chance(3))
                        continue;
                if (!f->write)
                        *(uint64_t *)r->frame = f->value;
                r->error = f->refused ? -EIO : 0;
                f->used = false;
                f->r = NULL;
                far_done(r);
        }
}

/* For this process only. */
static void lose(struct far_node *n)
{
        hand_back(n, bug != LOST_UNSAID);
        far_lost(n, true, "for this process");
        send_kept(n);
        met.lost++;
}

static void connect_again(struct far_node *n)
{
        struct view *v = view_of(n);

        if (nodes[n->index].gone) {
                far_lost(n, has_slabs(n->index), "it was restarted");
                send_kept(n);
                return;
        }
        v->serial = ++serials;
        v->known = true;
        if (bug != UP_UNFENCED)
                end_connections(n->index, member_of(self()), member_of(self()), v->serial);
        crash_point();
        if (n->hands_back)
                far_up(n);
}

void driver_step(void)
{
        struct seat *s = self();

        for (unsigned i = 0; i < NODES; i++) {
                struct far_node *n = &s->node[i];
                struct view *v = &s->view[i];
                if (n->lost)
                        continue;
                if (v->serial)
                        send_kept(n);
                if (v->serial && reaches(s, i) && !nodes[i].gone)
                        take_answers(n);
                if (v->serial && nodes[i].drained && reaches(s, i) && !nodes[i].gone)
                        far_asked(n);
                if (v->serial && v->lose)
                        lose(n);
                else if (v->serial && v->broken && chance(4))
                        hand_back(n, true);
                else if (!v->serial && reaches(s, i) &&
                         chance(s->late && !v->known && phase == CHAOS ? first_after : 8))
                        connect_again(n);
        }
}

static int cut(struct far_node *n, const struct far_range *dead, unsigned count, unsigned limit_ms,
               char why[FAR_WHY])
{
        (void)limit_ms;
        *why = '\0';
        nap(chance(4) ? 2000 : 10);
        if (nodes[n->index].gone)
                return -ESTALE;
        if (!reaches(self(), n->index) || (phase == CHAOS && chance(deaf_in)))
                return bug == CUT_UNANSWERED ? 0 : -ENOLINK;
        for (unsigned i = 0; i < count; i++) {
                for (struct seat *s = seats; s < seats + SEATS; s++)
                        if (s->alive && s->up && member_of(s) >= dead[i].first &&
                            member_of(s) <= dead[i].last)
                                sched_fail("process %u, which lives, is cut off", s->tree.self);
                if (bug != CUT_UNDONE)
                        end_connections(n->index, dead[i].first, dead[i].last, 0);
        }
        met.cuts++;
        nap(chance(4) ? 2000 : 10);
        return 0;
}

static bool answer(struct far_node *n, bool moved)
{
        struct view *v = view_of(n);

        if (!v->serial || nodes[n->index].gone || !reaches(self(), n->index) || chance(4))
                return false;
        if (moved)
                check_answer(self(), n->index);
        v->answered = moved;
        met.unanswered += !moved;
        return true;
}

static uint32_t sum(uint32_t begun, const void *page, size_t n)
{
        (void)begun;
        (void)n;
        return (uint32_t)*(const uint64_t *)page;
}

const struct far_driver model_driver = {
        .scheme = "model", .kind = SLAB_REMOTE,
        .post = post, .cut = cut, .sum = sum, .answer = answer
};
