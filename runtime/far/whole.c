/*
 * The search for slots that still lack a copy, of all processes of the tree.  See whole.h.
 */
#include <stdatomic.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "far/copies.h"
#include "far/nodes.h"
#include "far/whole.h"
#include "include/allocator.h"

#define TREE_LOOK_MS 500
/* In one step: some 10 us for each, which has 1 GiB. */
#define SLABS_LOOKED_AT 4

static struct scan {
        uint32_t next_slab;             /* 0: no scan has begun */
        int64_t next;                   /* ms: the earliest time for the next scan */
} scan;

/* Relaxed: the process that reads it scans the copies themselves. */
static _Atomic uint32_t *copied_in_tree(void)
{
        return &TREE_COMMON->copied;
}

void whole_copied(void) { atomic_store_explicit(copied_in_tree(), 1, memory_order_relaxed); }

bool whole_goes_on(void) { return scan.next_slab > 0; }

void whole_restart(void) { scan = (struct scan){ 0 }; }

static void say_all_whole(void)
{
        if (atomic_exchange_explicit(copied_in_tree(), 0, memory_order_relaxed) &&
            opt.replicas > 1 &&
            atomic_load_explicit(&TREE_COMMON->numbers, memory_order_relaxed) > 1)
                warnx_("far memory: all nodes that answer have the copies of all processes again");
}

/* No process lacks a copy of a page of the slab, or its pages are not on remote nodes. */
static bool is_whole(uint32_t i)
{
        const struct copies c = copies();
        const struct slab *s = &CONTROL->slabs[i];

        return s->kind != SLAB_REMOTE || !copies_any_wanting(&c, far_slab(i), i, s->pages);
}

void whole_look(int64_t now)
{
        if (now < scan.next || !atomic_load_explicit(copied_in_tree(), memory_order_relaxed))
                return;
        unsigned left = SLABS_LOOKED_AT;
        for (; left && scan.next_slab < CONTROL->nslabs && is_whole(scan.next_slab); left--)
                scan.next_slab++;
        if (!left)
                return;                 /* the next step continues the scan */
        if (scan.next_slab >= CONTROL->nslabs)
                say_all_whole();
        scan = (struct scan){ .next = now + TREE_LOOK_MS };
}
