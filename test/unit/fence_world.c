/*
 * See fence_model.h: lives, locks, time, and the network.
 *
 * The network delivers the messages of a connection in order, in two parts if it likes, and as late
 * as it likes, also after the client has closed it.  It may hold a connection back for long, lose
 * its end, and repeat all that was sent on it, on another connection whose answers go nowhere.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/clock.h"
#include "common/message.h"
#include "fence_model.h"

struct life *running;
enum trouble trouble;
int64_t clock_ms;
struct wire wires[WIRES];
uint64_t unreachable_until[NODES];

/* ---- lives ---- */

static bool life_ready(void *arg)
{
        struct life *me = arg;
        return me->doomed || (!me->stopped && me->ready(me->waits_for));
}

static void look(struct life *me)
{
        running = me;
        if (!me || !me->doomed)
                return;
        me->doomed = false;
        longjmp(me->top, 1);
}

bool never(void *arg) { (void)arg; return false; }
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
        if (me && me->stopped)
                wait_until(always, NULL);
}

struct timed { bool (*ready)(void *); void *arg; int64_t until; };
static bool timed_ready(void *arg)
{
        const struct timed *t = arg;
        return clock_ms >= t->until || t->ready(t->arg);
}

bool wait_until_ms(bool (*ready)(void *), void *arg, int64_t ms)
{
        struct timed t = { ready, arg, ms };

        wait_until(timed_ready, &t);
        return ready(arg);
}

int64_t now_ms(void) { return clock_ms; }
/* Only memnode waits so.  Its patience, of 10 s, would often last longer than the run. */
struct timespec deadline_in_ms(uint64_t ms)
{
        int64_t at = clock_ms + (int64_t)ms / 10;
        return (struct timespec){ at / 1000, at % 1000 * 1000000 };
}
void info_(const char *fmt, ...) { (void)fmt; }
void warnx_(const char *fmt, ...) { (void)fmt; }
void notice_(const char *fmt, ...) { (void)fmt; }

/* ---- locks ---- */

/* Their memory is that of the mutex or condition, which is all zero at first. */
struct model_cond { uint64_t news; };
_Static_assert(sizeof(struct model_lock) <= sizeof(pthread_mutex_t) &&
                       sizeof(struct model_cond) <= sizeof(pthread_cond_t),
               "they fit");

static bool is_free(void *lock) { return !((struct model_lock *)lock)->owner; }

bool model_trylock(void *mutex)
{
        struct model_lock *l = mutex;

        crash_point();
        if (l->owner)
                return false;
        l->owner = running;
        return true;
}

void model_lock(void *mutex)
{
        struct model_lock *l = mutex;

        crash_point();
        if (trouble == STALLS && phase == CHAOS && chance(40))
                wait_until_ms(never, NULL, clock_ms + rnd(chance(3) ? 2000 : 100));
        while (l->owner)
                wait_until(is_free, l);
        l->owner = running;
}

void model_unlock(void *mutex)
{
        struct model_lock *l = mutex;

        if (l->owner != running)
                sched_fail("a lock is released that another holds");
        l->owner = NULL;
        crash_point();
}

struct news { const struct model_cond *c; uint64_t seen; };
static bool is_news(void *arg)
{
        const struct news *n = arg;
        return n->c->news != n->seen;
}

bool model_wait(void *cond, void *mutex, int64_t until)
{
        struct news n = { cond, ((struct model_cond *)cond)->news };

        ((struct model_lock *)mutex)->owner = NULL;
        bool is = chance(50) || wait_until_ms(is_news, &n, until);
        model_lock(mutex);
        return is;
}

void model_wake(void *cond)
{
        ((struct model_cond *)cond)->news++;
        crash_point();
}

/* ---- memory of a run ---- */

static struct block { struct block *next, *before; } blocks = { &blocks, &blocks };

void *run_alloc(size_t n)
{
        struct block *b = calloc(1, sizeof(*b) + n);

        if (!b)
                abort();
        *b = (struct block){ blocks.next, &blocks };
        blocks.next->before = b;
        blocks.next = b;
        return b + 1;
}

void run_free(void *p)
{
        if (!p)
                return;
        struct block *b = (struct block *)p - 1;
        b->next->before = b->before;
        b->before->next = b->next;
        free(b);
}

void run_free_all(void)
{
        while (blocks.next != &blocks)
                run_free(blocks.next + 1);
}

const char *keep_text(const char *text)
{
        size_t n = strlen(text) + 1;
        return memcpy(run_alloc(n), text, n);
}

/* ---- the network ---- */

static struct message made[16];         /* the last requests to make a lease */
static unsigned nmade;

void net_reset(void)
{
        nmade = 0;
        memset(wires, 0, sizeof(wires));
        memset(unreachable_until, 0, sizeof(unreachable_until));
}

/* Nothing can come of it any more. */
static bool is_past(const struct wire *w)
{
        return w->closed && (w->over || (!w->served && w->end_sent && !w->nsent && !w->ngot)) &&
               !w->repeats && !(w->listens && w->nback);
}

static uint64_t serials;
static bool is_lost(const struct wire *w) { return w->closed && !w->served; }

static struct wire *find(bool (*suits)(const struct wire *w))
{
        for (struct wire *w = wires; w < wires + WIRES; w++)
                if (!w->used || suits(w))
                        return w;
        return NULL;
}

/* If there are too many, some that the node knows nothing of get lost. */
struct wire *wire_new(unsigned node)
{
        struct wire *w = find(is_past);

        if (!w)
                w = find(is_lost);
        if (w)
                *w = (struct wire){
                        .used = true, .serial = ++serials, .node = node, .repeats = chance(8)
                };
        return w;
}

void wire_send(struct wire *w, const struct message *m)
{
        if (w->nsent == QUEUE)
                sched_fail("the model's queue is too short");
        else
                w->sent[w->nsent++] = *m;
        if (w->nlog < QUEUE)
                w->log[w->nlog++] = *m;
        if (m->name && memcmp(m->name, "create-", 7) == 0)
                made[nmade++ % 16] = *m;
}

void net_remake(void)
{
        for (unsigned i = 0; i < nmade && i < 16; i++) {
                struct wire *w = wire_new(0);
                if (!w)
                        return;
                w->sent[w->nsent++] = made[i];
                w->closed = true;
                met.repeated++;
        }
}

static void shift(struct message *list, unsigned *n)
{
        memmove(list, list + 1, --*n * sizeof(*list));
}

bool wire_has_answer(const struct wire *w)
{
        return w->nback && sched_steps >= unreachable_until[w->node] &&
               (phase != CHAOS || sched_steps >= w->held_until);
}

bool wire_answer(struct wire *w, struct message *m)
{
        if (!wire_has_answer(w))
                return false;
        *m = w->back[0];
        shift(w->back, &w->nback);
        return true;
}

void wire_close(struct wire *w)
{
        if (!w)
                return;
        w->closed = true;
        if (!w->listens)
                w->nback = 0;
        w->end_sent = phase != CHAOS || !chance(4);
        if (chance(3))
                w->held_until = sched_steps + rnd(chance(4) ? 40000 : 6000);
        met.late += w->nsent > 0;
}

/* All that was sent on a connection comes once more. */
static void repeat(struct wire *w)
{
        struct wire *copy = wire_new(w->node);

        if (!copy)
                return;
        w->repeats = copy->repeats = false;
        copy->closed = true;
        memcpy(copy->sent, w->log, sizeof(w->log));
        copy->nsent = w->nlog;
        met.repeated++;
}

/* Bytes that are in the socket when it is shut down can still be received. */
static void deliver(struct wire *w)
{
        if (w->over || w->shut) {
                w->nsent = 0;
        } else if (w->ngot && w->got[w->ngot - 1].parts == 1) {
                w->got[w->ngot - 1].parts = 2;
        } else if (w->nsent && w->ngot < QUEUE) {
                w->got[w->ngot] = w->sent[0];
                w->got[w->ngot++].parts = w->sent[0].kind == WRITE && chance(4) ? 1 : 2;
                shift(w->sent, &w->nsent);
        } else if (!w->nsent && w->end_sent) {
                w->end_got = true;
        }
}

void net_step(void)
{
        struct wire *w = &wires[rnd(WIRES)];

        if (!w->used)
                return;
        if (phase != CHAOS) {
                w->end_sent |= w->closed;
                w->repeats = false;
        } else if (chance(300)) {
                w->held_until = sched_steps + rnd(chance(4) ? 30000 : 3000);
        } else if (w->closed && !w->end_sent && chance(500)) {
                w->end_sent = true;
        } else if (w->repeats && w->nlog && chance(w->closed ? 60 : 600)) {
                repeat(w);
                return;
        }
        if ((phase == CHAOS || w->closed) && sched_steps < w->held_until)
                return;
        if (sched_steps < unreachable_until[w->node])
                return;
        /* messages of a closed connection may come late */
        if (phase != CHAOS || !w->closed || chance(4))
                deliver(w);
        if (w->ngot && !w->served && !w->over)
                node_accept(w);
}
