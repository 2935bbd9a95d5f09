/*
 * See meter.h.
 */
#include "abi.h"
#include "far/meter.h"

struct meter meter_queue, meter_wire, meter_node[NODES_MAX][2];

static void more(uint64_t *v, uint64_t by)
{
        __atomic_store_n(v, *v + by, __ATOMIC_RELAXED);
}

/* A clock that runs back a little on another CPU measures nothing. */
static void add(struct meter *m, uint64_t from, uint64_t to)
{
        uint64_t ticks = to > from ? to - from : 0;

        more(&m->bucket[hist_bucket(ticks)], 1);
        more(&m->ticks, ticks);
}

void meter_fetch(uint64_t asked, uint64_t sent)
{
        if (CONTROL->time.valid)
                add(&meter_queue, asked - (uint64_t)CONTROL->tsc_offset, sent);
        add(&meter_wire, sent, meter_now());
}

void meter_page(const struct far_node *n, bool write, uint64_t taken)
{
        add(&meter_node[n->index][write], taken, meter_now());
}
