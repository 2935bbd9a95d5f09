/*
 * The search for pages with fewer copies than --replicas.  See fewer.h.
 */
#include <stdatomic.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/fewer.h"
#include "far/nodes.h"
#include "far/placement.h"
#include "include/allocator.h"

/* A change is said once it has lasted for so long: a node that comes back at once, or comes and
 * goes, fills no log. */
#define LASTS_MS 2000
/* In one step: a ms or two, if each slab has 1 GiB. */
#define SLABS_LOOKED_AT 16

/* By the thread of rebuild.c. */
static struct {
        uint32_t next_slab;
        uint64_t pages;                 /* found so far */
        int64_t since;                  /* ms: what was said last is wrong; 0: it is right */
} search;

static uint64_t pages_of(uint32_t i)
{
        const struct copies c = copies();
        const struct slab *s = &CONTROL->slabs[i];

        return s->kind == SLAB_REMOTE ? copies_fewer(&c, far_slab(i), i, s->pages, opt.replicas)
                                      : 0;
}

static uint32_t slabs_now(void) { return __atomic_load_n(&CONTROL->nslabs, __ATOMIC_ACQUIRE); }

uint64_t fewer_pages(void)
{
        uint64_t pages = 0;

        for (uint32_t i = 0, n = slabs_now(); i < n; i++)
                pages += pages_of(i);
        return pages;
}

static void say(uint64_t pages)
{
        /* With too few nodes from the start check_replicas() has said so. */
        if (placement_domains(far_node_list(), far_nodes()) < opt.replicas)
                return;
        if (pages)
                warnx_("far memory: %llu pages have fewer than %u copies, as too few nodes answer "
                       "or have room: see vmctl %d nodes; vmctl %d nodes add URL adds one",
                       (unsigned long long)pages, opt.replicas, getpid(), getpid());
        else
                warnx_("far memory: all pages have %u copies again", opt.replicas);
}

/* Only who has said the one says the other: another process may not use the slabs with those
 * pages, and would find none. */
static void judge(uint64_t pages, int64_t now)
{
        /* Relaxed: the word alone counts. */
        _Atomic uint32_t *said = &TREE_COMMON->fewer_said;
        uint32_t self = CONTROL->tree_number + 1, then = pages ? 0 : self;

        if (atomic_load_explicit(said, memory_order_relaxed) != then)
                search.since = 0;
        else if (!search.since)
                search.since = now;
        else if (now - search.since >= LASTS_MS &&
                 atomic_compare_exchange_strong_explicit(said, &then, pages ? self : 0,
                                                         memory_order_relaxed,
                                                         memory_order_relaxed))
                say(pages);
}

void fewer_look(void)
{
        const uint32_t n = slabs_now();

        for (unsigned left = SLABS_LOOKED_AT; left && search.next_slab < n; left--)
                search.pages += pages_of(search.next_slab++);
        if (search.next_slab < n)
                return;                 /* the next step continues */
        judge(search.pages, now_ms());
        search.next_slab = 0;
        search.pages = 0;
}
