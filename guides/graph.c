/*
 * A guide for graphs in compressed rows: the neighbours of all vertices lie in one array, and for
 * each of them the program looks at a value, anywhere in another.
 *
 *      vmrun --guide graph ... examples/graph
 *
 * A fault on a value has no neighbour that would be next: what is next stands in the array of
 * neighbours.  Where the program is there, a register says: the address of the neighbour, or its
 * index.  Which register it is depends on the compiler; the guide takes one by which the neighbour
 * is the vertex that was touched.  Then it asks for the values of the next neighbours.
 *
 * It keeps nothing from call to call but hints, so threads need no lock.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>
#include "graph.h"
#include "vmguest.h"

#define AHEAD 64                        /* neighbours */
#define PAGES 32                        /* of them, at most */
#define ROWS  16

#define PUBLIC __attribute__((visibility("default")))

static struct graph_rows table[ROWS];
static unsigned rows;
static _Atomic unsigned last_register;  /* where the index was: a hint */
/* Up to which neighbour a thread has asked, by its stack: two threads may share a place. */
static _Atomic uint64_t asked[64];

/* Is targets[i] the vertex?  The program may have moved its register on already. */
static bool is_at(const struct graph_rows *r, uint64_t i, uint32_t vertex)
{
        uint32_t target;

        return i < r->edges && vmg_peek(&target, r->targets + i, sizeof(target)) == 0 &&
               target == vertex;
}

/* *i: the index of the neighbour that the thread is at, if this register tells. */
static bool tells(const struct graph_rows *r, uint64_t value, uint32_t vertex, uint64_t *i)
{
        uint64_t bytes = value - (uintptr_t)r->targets, size = sizeof(*r->targets);

        *i = bytes % size == 0 && bytes / size <= r->edges ? bytes / size : value;
        if (is_at(r, *i, vertex))
                return true;
        return *i > 0 && is_at(r, --*i, vertex);
}

static bool find(const struct graph_rows *r, const struct vmg_fault *f, uint64_t *i)
{
        uint32_t vertex = (uint32_t)((f->addr - (uintptr_t)r->values) / r->value_size);
        unsigned hint = atomic_load_explicit(&last_register, memory_order_relaxed);

        if (tells(r, f->reg[hint], vertex, i))
                return true;
        for (unsigned k = 0; k < VMG_RIP; k++)
                if (k != hint && tells(r, f->reg[k], vertex, i)) {
                        atomic_store_explicit(&last_register, k, memory_order_relaxed);
                        return true;
                }
        return false;
}

static bool is_new(const struct iovec *ask, int n, uintptr_t page)
{
        for (int k = n; k-- > 0;)
                if ((uintptr_t)ask[k].iov_base == page)
                        return false;
        return true;
}

/* Relaxed: no more than a hint. */
static void ask_from(const struct graph_rows *r, uint64_t i, uintptr_t but, _Atomic uint64_t *until)
{
        uint64_t end = r->edges - i < AHEAD ? r->edges : i + AHEAD, k, n;
        uint64_t before = atomic_load_explicit(until, memory_order_relaxed);
        struct iovec ask[PAGES];
        uint32_t target[AHEAD];
        int asks = 0;

        if (before > i && before <= end)
                i = before;
        if (end < r->edges && end - i < AHEAD / 2)
                return;                 /* many at a time: each time costs a call of the guide */
        n = end - i;
        if (vmg_peek(target, r->targets + i, n * sizeof(*target)) != 0)
                return;
        for (k = 0; k < n && asks < PAGES; k++) {
                uintptr_t page = ((uintptr_t)r->values + target[k] * r->value_size) &
                                 ~(VMG_PAGE - 1ul);
                if (page != but && is_new(ask, asks, page))
                        ask[asks++] = (struct iovec){ (void *)page, 1 };
        }
        if (asks)
                vmg_prefetchv(ask, asks);
        atomic_store_explicit(until, i + k, memory_order_relaxed);
}

static long guide(const struct vmg_fault *f, void *arg)
{
        const struct graph_rows *r = arg;
        uint64_t i;

        if (find(r, f, &i))
                ask_from(r, i + 1, f->addr & ~(VMG_PAGE - 1ul),
                         &asked[(f->reg[VMG_RSP] >> 16) % 64]);
        return 0;
}

PUBLIC void graph_rows(const struct graph_rows *r)
{
        if (rows == ROWS || r->value_size == 0 || r->edges == 0)
                return;
        table[rows] = *r;
        if (vmg_guide(r->values, r->vertices * r->value_size, guide, &table[rows]) == 0)
                rows++;
}
