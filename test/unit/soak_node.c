/*
 * See soak.h: a node with a network that holds back any message, by the rules of docs/protocol.md
 * that the tree relies on.
 *
 * A link is used in turn by its member, which fills messages, and by the node, which takes half a
 * page at a time.  Messages of a killed member still arrive, late and perhaps torn, until the link
 * is cut.
 */
#include <string.h>
#include <unistd.h>
#include "common/clock.h"
#include "soak.h"

struct world *world;

#define HALF         (PAGE_SIZE / 2)
#define CUT_LIMIT_MS 1000

/* Of the node's process. */
static uint64_t random_state;
static struct tree tree;

/* ---- the node's end ---- */

static void exchange(_Atomic uint32_t *a, _Atomic uint32_t *b)
{
        uint32_t was = atomic_load(a);

        atomic_store(a, atomic_load(b));
        atomic_store(b, was);
}

static void swap_sums(uint64_t a, uint64_t b)
{
        exchange(slot_sum(tree.units, a), slot_sum(tree.units, b));
        for (unsigned i = 0; i < PIECES; i++)
                exchange(&slot_pieces(tree.pieces, a)->sum[i],
                         &slot_pieces(tree.pieces, b)->sum[i]);
}

/* Planted: the next two messages go to each other's slot, and so do their sums. */
static bool swap_two(struct link *l)
{
        struct message *m = &l->message[l->next % RING];
        struct message *n = &l->message[(l->next + 1) % RING];

        if (link_is_over(n))
                return false;
        swap_sums(m->slot, n->slot);
        memcpy(node_page(m->slot), n->page, PAGE_SIZE);
        memcpy(node_page(n->slot), m->page, PAGE_SIZE);
        l->next += 2;
        atomic_store(&m->sent, 0);
        atomic_store(&n->sent, 0);
        return true;
}

/* Takes half a page of the next message.  False: there is none. */
static bool take_half(struct link *l)
{
        struct message *m = &l->message[l->next % RING];
        uint32_t at = l->half * HALF;

        if (link_is_over(m))
                return false;
        if (at == 0 && (world->plant == UNSEEDED || world->plant == SWAPPED) && swap_two(l))
                return true;
        if (world->plant == FLIPPED && rnd(&random_state, 256) == 0)
                m->page[rnd(&random_state, PAGE_SIZE)] ^= 4;
        if (at == 0)
                l->lost = world->plant == LOST && rnd(&random_state, 64) == 0;
        if (!l->lost)
                memcpy(node_page(m->slot) + at, m->page + at, HALF);
        l->half ^= 1;
        if (l->half == 0) {
                l->next++;
                /* Release: the page is at the node before its owner reads it. */
                atomic_store_explicit(&m->sent, 0, memory_order_release);
        }
        return true;
}

static void end_link(struct link *l)
{
        for (unsigned i = 0; i < RING; i++)
                atomic_store(&l->message[i].sent, 0);
        l->next = l->half = l->rest = 0;
        atomic_store(&l->owner, 0);
}

/* The network holds a link back: sometimes for a few turns, also in the middle of a page; and a
 * third of the time for many, in which slots of the dead could find new owners.  With a planted bug
 * two thirds of the time. */
static void serve(struct link *l)
{
        uint64_t owner = atomic_load(&l->owner);

        if (owner & LINK_CUT)
                end_link(l);
        else if (l->rest > 0)
                l->rest--;
        else if (owner && rnd(&random_state, world->plant == NO_PLANT ? 400 : 100) == 0)
                l->rest = rnd(&random_state, 400);
        else if (owner)
                while (take_half(l) && (l->rest = rnd(&random_state, 64) ? 0 : 10) == 0)
                        ;
}

void node_begin(const struct tree *t)
{
        world->node = getpid();
        tree = *t;
        random_state = world->seed * 2 + 1;
}

void node_turn(void)
{
        /* A process that waits for a cut sees by the count that the turn is over which may not have
         * seen the request. */
        atomic_fetch_add(&world->turn, 1);
        for (unsigned i = 0; i < LINKS; i++)
                serve(&world->link[i]);
        usleep(50);
}

/* ---- the members' end ---- */

static bool is_dead(const struct tree_dead *d, uint64_t birth)
{
        for (unsigned i = 0; i < d->n; i++)
                if (birth >= d->range[i].first && birth <= d->range[i].last)
                        return true;
        return false;
}

bool node_cut(const struct tree_dead *d)
{
        for (unsigned i = 0; i < LINKS; i++) {
                uint64_t owner = atomic_load(&world->link[i].owner);
                /* The exchange fails if the link has been given to another member meanwhile. */
                if (owner && !(owner & LINK_CUT) && is_dead(d, owner / 2))
                        atomic_compare_exchange_strong(&world->link[i].owner, &owner,
                                                       owner | LINK_CUT);
        }
        atomic_fetch_add(&world->cuts, 1);
        if (world->node == getpid())
                return true;            /* no turn is under way */
        /* One turn would do; some answers come later, and more processes die meanwhile. */
        uint64_t seen = atomic_load(&world->turn), until = seen + (seen % 4 ? 1 : 40);
        for (int64_t end = now_ms() + CUT_LIMIT_MS; atomic_load(&world->turn) < until; usleep(50))
                if (now_ms() > end)
                        return false;
        return true;
}

struct link *link_open(uint64_t birth)
{
        for (unsigned i = 0; i < LINKS; i++) {
                uint64_t unused = 0;
                if (atomic_compare_exchange_strong(&world->link[i].owner, &unused, birth * 2))
                        return &world->link[i];
        }
        return NULL;
}

bool link_is_over(const struct message *m)
{
        return !atomic_load_explicit(&m->sent, memory_order_acquire);
}

struct message *link_room(struct link *l, uint32_t number)
{
        struct message *m = &l->message[number % RING];

        return link_is_over(m) ? m : NULL;
}

void link_send(struct message *m, uint64_t slot, const char *page)
{
        m->slot = slot;
        memcpy(m->page, page, PAGE_SIZE);
        atomic_store_explicit(&m->sent, 1, memory_order_release);
}
