/*
 * See fence_model.h: one memnode, which has the leases of all nodes of the model.  Names, leases,
 * members and fences are its real sources; handshake and transfers are modelled, with the looks at
 * `cut` that nbd/transmit.c has.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/clock.h"
#include "common/secret.h"
/* The hooks know this type of the pager; nothing here has it. */
typedef uint64_t pte_slot_t;
#include "fence_hooks.h"

#define calloc(n, size)  run_alloc((n) * (size))
#define realloc(p, size) run_realloc(p, size)
#define free(p)          run_free(p)
#define opt              memnode_opt

/* Lists only grow, and their old size is in their owner: so a copy of the new size is too much. */
static void *run_realloc(void *p, size_t size)
{
        void *n = run_alloc(size);

        if (p)
                memcpy(n, p, size / 2);
        run_free(p);
        return n;
}

#include "memnode/members.c"
#include "memnode/nbd/name.c"
#undef PAGE
#include "memnode/nbd/export.c"
#include "memnode/nbd/fence.c"

struct memnode_options opt;

/* ---- what surrounds them ---- */

struct account { char mark[9]; char *at; };
static char gone[256][9];
static unsigned ngone;

bool party_crowded(struct party *p, bool fresh) { (void)p, (void)fresh; return false; }

const char *account_party(const struct account *a) { (void)a; return ""; }

struct account *account_open(const char *name, struct party *party)
{
        struct account *a = run_alloc(sizeof(*a));

        (void)party;
        sscanf(name, "NBD lease %8s", a->mark);
        return a;
}

int account_take(struct account *a, uint64_t bytes, char **at)
{
        crash_point();
        *at = a->at = run_alloc(bytes);
        return 0;
}

void account_close(struct account *a)
{
        memcpy(gone[ngone++ % 256], a->mark, sizeof(a->mark));
        met.expired++;
        run_free(a->at);
        run_free(a);
}

/* A request that came late may have made another lease of that name since. */
bool node_is_gone(const char *hex)
{
        for (unsigned i = 0; i < ngone && i < 256; i++)
                if (memcmp(gone[i], hex, 8) == 0)
                        return true;
        return !find_lease(hex);
}

int nbd_thread(pthread_t *id, void *(*run)(void *), void *arg, bool detached)
{
        (void)id, (void)run, (void)arg, (void)detached;
        return -EAGAIN;
}

ssize_t model_random(void *to, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ((char *)to)[i] = (char)rnd(256);
        return (ssize_t)n;
}

int model_shutdown(int fd)
{
        wires[fd].shut = true;
        return 0;
}

int model_close(int fd)
{
        wires[fd].over = true;
        return 0;
}

/* ---- a thread for a connection ---- */

static struct server {
        struct life life;
        struct wire *wire;              /* NULL: none to serve */
        struct nbd_fenced at;
} servers[THREADS];
static struct life sweeper_life;

static bool has_work(void *arg) { return ((struct server *)arg)->wire || phase == OVER; }

static bool has_input(void *arg)
{
        const struct wire *w = arg;
        return w->ngot || w->end_got || w->shut;
}
static bool has_rest(void *arg)
{
        const struct wire *w = arg;
        return w->got[0].parts > 1 || w->end_got || w->shut;
}

static bool is_calm(void *arg) { (void)arg; return phase != CHAOS; }

static void answer(struct wire *w, const struct message *m)
{
        if (!w->shut && (!w->closed || w->listens) && w->nback < QUEUE)
                w->back[w->nback++] = *m;
}

static enum answer meaning(uint32_t error)
{
        return error == 0                       ? OK
               : error == NBD_REP_ERR_UNKNOWN   ? GONE
               : error == NBD_REP_ERR_INVALID   ? DEAD
                                                : AGAIN;
}

static bool receive(struct wire *w, struct message *m)
{
        wait_until(has_input, w);
        if (!w->ngot)
                return false;
        *m = w->got[0];
        return true;
}

static void consume(struct wire *w) { memmove(w->got, w->got + 1, --w->ngot * sizeof(w->got[0])); }

/* Up to the answer that it is attached. */
static bool shake_hands(struct server *s)
{
        struct wire *w = s->wire;
        struct message m;
        const char *text = "";
        struct nbd_export *e;
        uint64_t size;

        while (receive(w, &m)) {
                consume(w);
                if (m.kind != ASK && m.kind != INFO)
                        return false;   /* not the protocol */
                if (trouble == SLOW_CUTS && m.kind == INFO && chance(3))
                        wait_until_ms(is_calm, NULL, clock_ms + rnd(8000));
                size_t len = strlen(m.name);
                uint32_t error = m.kind == INFO ? nbd_export_look(m.name, len, &size, &e, &text)
                                                : nbd_fence_attach(&s->at, NULL, m.name, len,
                                                                 &text);
                if (!error && m.kind == INFO && e) {
                        error = nbd_fence_cut(e, &text);
                        met.cuts += !error;
                }
                m.answer = meaning(error);
                if (!error && m.kind == ASK) {
                        char words[NBD_DESCRIPTION];
                        nbd_export_describe(s->at.e, words);
                        sscanf(words, "incarnation %" SCNx64, &m.value);
                }
                answer(w, &m);
                if (!error && m.kind == ASK)
                        return true;
        }
        return false;
}

/* A page is received in two slices.  False: the connection ends within it. */
static bool transfer(struct server *s, struct message *m)
{
        uint32_t *page = (uint32_t *)(s->at.e->base + m->slot * sizeof(uint64_t));
        uint32_t half[2];

        memcpy(half, &m->value, sizeof(half));
        for (unsigned i = 0; i < 2; i++) {
                if (i == 1 && m->kind == WRITE)
                        wait_until(has_rest, s->wire);
                if (nbd_fence_is_cut(&s->at))
                        return false;
                if (s->wire->got[0].parts <= i)
                        return false;
                /* within the receive of this slice, whatever is said meanwhile */
                crash_point();
                if (chance(16))
                        wait_until_ms(is_calm, NULL,
                                      clock_ms + rnd(trouble == LONG_SLICES ? 30000 : 200));
                if (m->kind == WRITE && i == 0)
                        page_arrives(s->wire->node, m->slot, m->value);
                if (m->kind == WRITE)
                        page[i] = half[i];
                else
                        half[i] = page[i];
        }
        memcpy(&m->value, half, sizeof(half));
        return true;
}

static void serve(struct server *s)
{
        struct wire *w = s->wire;
        struct message m;

        while (receive(w, &m)) {
                if (nbd_fence_is_cut(&s->at))
                        return;
                if (m.kind == GOODBYE) {
                        nbd_fence_leave(&s->at, true);
                        return;
                }
                if ((m.kind != READ && m.kind != WRITE) || !transfer(s, &m))
                        return;
                consume(w);
                m.answer = OK;
                answer(w, &m);
        }
}

static void server_main(void *arg)
{
        struct server *s = arg;

        if (setjmp(s->life.top))        /* memnode was restarted */
                s->wire = NULL;
        running = &s->life;
        s->life.doomed = false;
        for (;; s->wire = NULL) {
                wait_until(has_work, s);
                if (phase == OVER)
                        return;
                s->at = (struct nbd_fenced){ .fd = (int)(s->wire - wires) };
                nbd_fence_enter(&s->at);
                if (shake_hands(s))
                        serve(s);
                nbd_fence_exit(&s->at);
        }
}

static void sweeper_main(void *arg)
{
        (void)arg;
        setjmp(sweeper_life.top);
        running = &sweeper_life;
        sweeper_life.doomed = false;
        if (phase != OVER)
                sweep(NULL);
}

void node_accept(struct wire *w)
{
        for (struct server *s = servers; s < servers + THREADS; s++)
                if (!s->wire && !s->life.doomed) {
                        s->wire = w;
                        w->served = true;
                        return;
                }
}

void node_spawn(void)
{
        for (struct server *s = servers; s < servers + THREADS; s++)
                sched_spawn(server_main, s);
        sched_spawn(sweeper_main, NULL);
}

/* ---- the whole ---- */

static void forget_all(void)
{
        connections = NULL;
        nconnections = 0;
        closing = phase == OVER;
        memset(&nbd_leases_lock, 0, sizeof(nbd_leases_lock));
        memset(&lock, 0, sizeof(lock));
}

void node_reset(uint32_t grace_ms)
{
        nbd_leases = NULL;
        forget_all();
        memset(servers, 0, sizeof(servers));
        memset(&sweeper_life, 0, sizeof(sweeper_life));
        closing = false;
        ngone = 0;
        opt.grace_ms = grace_ms;
}

/* Makes the lease as the next memnode finds it in the file (kept.c). */
static void keep(struct lease *l)
{
        for (struct server *s = servers; s < servers + THREADS; s++)
                if (s->wire && s->at.e == &l->e)
                        members_await(&l->members, s->at.who.member);
        l->users = 0;
        l->since = now_ms();
        l->until = l->since + opt.grace_ms;
        l->next = nbd_leases;
        nbd_leases = l;
        met.kept++;
}

void node_restart(bool keeps)
{
        struct lease *l = nbd_leases, *next;

        nbd_leases = NULL;
        for (; l; l = next) {
                next = l->next;
                if (keeps && l->e.base)         /* else it is being made */
                        keep(l);
                else
                        memcpy(gone[ngone++ % 256], l->hex, 8);
        }
        for (struct server *s = servers; s < servers + THREADS; s++) {
                if (s->wire)
                        s->wire->over = s->wire->shut = true;
                s->life.doomed = true;
        }
        sweeper_life.doomed = true;
        for (struct wire *w = wires; w < wires + WIRES; w++)
                if (w->used && (w->ngot || w->served))
                        w->over = w->shut = true;
        forget_all();
}

bool node_is_quiet(void)
{
        for (struct lease *l = nbd_leases; l; l = l->next)
                if (l->users)
                        return false;
        for (const struct nbd_fenced *c = connections; c; c = c->next)
                if (c->e)
                        return false;
        return true;
}
