/*
 * See fence_model.h: the I/O side of a process, as runtime/far/nbd has it: links that are made
 * again when they break, transfers that are sent again, and CUT.
 *
 * A link is stepped by the tick, as the I/O thread does beside the program.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "far/node.h"
#include "fence_model.h"

bool pipelines;
/* Leases of the model have names that no other run of it has. */
static uint32_t leases_made;

static bool is_broken(const struct wire *w) { return w->over || w->shut; }

static void drop_old(struct link *l)
{
        if (l->old && l->old->serial == l->old_serial) {
                l->old->listens = false;
                l->old->nback = 0;
        }
        l->old = NULL;
}

static void link_down(struct link *l)
{
        drop_old(l);
        l->wire->listens = bug == OLD_ANSWERS;
        wire_close(l->wire);
        if (bug == OLD_ANSWERS) {
                l->old = l->wire;
                l->old_serial = l->wire->serial;
        }
        l->wire = NULL;
        l->state = DOWN;
}

static void send_transfer(struct link *l, const struct transfer *t)
{
        wire_send(l->wire, &(struct message){ .kind = t->kind,
                                              .slot = slot_page(t->slot),
                                              .number = t->number,
                                              .value = t->kind == WRITE ? t->value : 0 });
}

static void resume(struct process *p, struct link *l)
{
        for (unsigned i = 0; i < DEPTH; i++) {
                struct transfer *t = &l->t[i];
                if (!t->used)
                        continue;
                if (bug == NOT_SENT_AGAIN && t->kind == WRITE && l->generation > 1) {
                        t->used = false;
                        process_done(p, t, t->value);
                } else {
                        send_transfer(l, t);
                }
        }
}

static void ask(struct process *p, struct view *v, struct link *l)
{
        char name[128];
        unsigned number = (unsigned)(l - v->link) + 1;

        if (!v->incarnation && number > 1)
                return;                 /* the first link makes the lease */
        l->wire = wire_new((unsigned)(v - p->view));
        if (!l->wire)
                return;
        l->state = ASKED;
        met.rejoins += l->generation > 0;
        if (bug != SAME_GENERATION || !l->generation)
                l->generation++;
        if (v->incarnation) {
                snprintf(name, sizeof(name), "join-%s-%016" PRIx64 "-%" PRIu64 "-%u-%u", v->hex,
                         v->incarnation, v->member, number, l->generation);
        } else {
                snprintf(v->hex, sizeof(v->hex), "%08x%024x", ++leases_made, 0u);
                snprintf(name, sizeof(name), "create-%s-4096-%" PRIu64 "-%u-%u", v->hex, v->member,
                         number, l->generation);
        }
        wire_send(l->wire, &(struct message){ .kind = ASK, .name = keep_text(name) });
        if (pipelines)
                resume(p, l);
}

static void is_asked(struct process *p, struct view *v, struct link *l)
{
        struct message m;

        if (!wire_answer(l->wire, &m))
                return;
        if (m.answer == OK) {
                v->incarnation = m.value;
                l->state = UP;
                if (!pipelines)
                        resume(p, l);
                return;
        }
        link_down(l);
        if (m.answer == AGAIN || !v->incarnation || bug == STAYS_AT_LOST)
                return;
        if (m.answer == DEAD)
                sched_fail("process %lu, which lives, counts as dead", (unsigned long)v->member);
        else if (!node_is_gone(v->hex))
                sched_fail("process %lu is told that its memory is gone, but it is there",
                           (unsigned long)v->member);
        else
                process_loses(p, (unsigned)(v - p->view));
}

static void take_answer(struct process *p, struct link *l, struct wire *w)
{
        struct message m;

        if (!w || !wire_answer(w, &m))
                return;
        for (struct transfer *t = l->t; t < l->t + DEPTH; t++)
                if (t->used && t->number == m.number) {
                        t->used = false;
                        process_done(p, t, m.value);
                        return;
                }
}

void client_step(struct process *p)
{
        struct view *v = &p->view[rnd(NODES)];
        struct link *l = &v->link[rnd(LINKS)];

        if (!p->alive || p->life.stopped || v->lost)
                return;
        if (l->wire && is_broken(l->wire) && !l->wire->nback && chance(4))
                link_down(l);
        else if (l->wire && phase == CHAOS &&
                 chance(trouble == STALLS && l->state == ASKED ? 100 : 800))
                link_down(l);           /* a middlebox ends it, or a time-out */
        else if (l->state == DOWN && p->attached && chance(4))
                ask(p, v, l);
        else if (l->state == ASKED)
                is_asked(p, v, l);
        else if (l->old && l->old->serial == l->old_serial && chance(30))
                take_answer(p, l, l->old);
        else if (l->state == UP)
                take_answer(p, l, l->wire);
}

static struct link *link_for(struct view *v, enum kind kind) { return &v->link[kind == WRITE]; }

bool client_can(const struct process *p, enum kind kind, uint64_t slot)
{
        const struct link *l = link_for((struct view *)&p->view[slot_slab(slot)], kind);

        for (unsigned i = 0; i < DEPTH; i++)
                if (!l->t[i].used)
                        return true;
        return false;
}

void client_post(struct process *p, enum kind kind, uint32_t page, uint64_t slot, uint64_t value)
{
        struct link *l = link_for(&p->view[slot_slab(slot)], kind);
        struct transfer *t = l->t;

        while (t->used)
                t++;
        *t = (struct transfer){ true, kind, page, slot, value, ++p->numbers };
        p->attached = true;
        if (l->state == UP || (l->state == ASKED && pipelines))
                send_transfer(l, t);
}

bool client_idle(const struct process *p)
{
        for (unsigned k = 0; k < NODES; k++)
                for (unsigned i = 0; i < LINKS; i++)
                        for (unsigned j = 0; j < DEPTH; j++)
                                if (p->view[k].link[i].t[j].used)
                                        return false;
        return true;
}

void client_close(struct process *p, bool goodbye)
{
        for (struct view *v = p->view; v < p->view + NODES; v++) {
                for (struct link *l = v->link; l < v->link + LINKS; l++) {
                        if (goodbye && l->state == UP && !is_broken(l->wire))
                                wire_send(l->wire, &(struct message){ .kind = GOODBYE });
                        if (l->wire)
                                link_down(l);
                        drop_old(l);
                        *l = (struct link){ .generation = l->generation };
                }
                wire_close(v->cut);
                v->cut = NULL;
        }
        p->attached = false;
}

/* ---- CUT ---- */

static bool cut_news(void *arg)
{
        const struct wire *w = arg;
        return wire_has_answer(w) || is_broken(w);
}

/* An earlier CUT may be under way on the connection, and may be answered now: over RDMA it is that
 * of all requests. */
static struct wire *cut_wire(struct view *v, unsigned node)
{
        if (v->cut && !is_broken(v->cut) && chance(2))
                return v->cut;
        wire_close(v->cut);
        v->cut = wire_new(node);
        return v->cut;
}

static const char *cut_name(const struct view *v, const struct far_range *dead, unsigned count)
{
        char name[1024];
        int n = snprintf(name, sizeof(name), "cut-%s-%016" PRIx64 "-", v->hex, v->incarnation);

        for (unsigned i = 0; i < count; i++)
                n += snprintf(name + n, sizeof(name) - (size_t)n, "%s%" PRIu64 ".%" PRIu64,
                              i ? "," : "", dead[i].first, dead[i].last);
        return keep_text(name);
}

static int cut_meaning(enum answer a)
{
        if (a == DEAD)
                sched_fail("a CUT makes no sense to the node");
        return a == OK ? 0 : a == GONE ? -ESTALE : -EAGAIN;
}

int client_cut(struct process *p, unsigned node, const struct far_range *dead, unsigned count,
               unsigned limit_ms)
{
        struct view *v = &p->view[node];
        struct wire *w = cut_wire(v, node);
        int64_t until = clock_ms + limit_ms;
        uint64_t number = ++p->numbers;
        struct message m;
        int err = w ? 1 : -EAGAIN;

        if (w && w->nsent == QUEUE)
                return -EAGAIN;
        if (w)
                wire_send(w, &(struct message){ .kind = INFO,
                                                .number = number,
                                                .name = cut_name(v, dead, count) });
        while (err > 0) {
                if (!wait_until_ms(cut_news, w, until))
                        err = -ETIMEDOUT;
                else if (!wire_answer(w, &m))
                        err = -ECONNRESET;
                else if (m.number == number || bug == ANY_CUT_ANSWER)
                        err = cut_meaning(m.answer);
        }
        met.cuts_late += err == -ETIMEDOUT;
        if (chance(2)) {
                wire_close(w);
                v->cut = NULL;
        }
        return bug == CUT_TIMES_OUT && err == -ETIMEDOUT ? 0 : err;
}
