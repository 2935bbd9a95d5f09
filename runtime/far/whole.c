/*
 * See whole.h.
 */
#include <stdatomic.h>
#include <window.h>
#include "base/message.h"
#include "base/options.h"
#include "far/copies.h"
#include "far/nodes.h"
#include "far/whole.h"
#include "include/tree.h"
#include "vm/vm.h"

#define TREE_LOOK_MS 500
/* In one step: some 10 us for each, which has 1 GiB. */
#define SLABS_LOOKED_AT 4

static uint32_t next_slab;              /* 0: no look has begun */
static int64_t next_tree_look;          /* ms */

/* tree_common.copied.  Relaxed: who reads it looks at the copies themselves. */
static _Atomic uint32_t *copied_in_tree(void)
{
        return &((struct tree_common *)TREE_WINDOW)->copied;
}

void whole_copied(void) { atomic_store_explicit(copied_in_tree(), 1, memory_order_relaxed); }

bool whole_goes_on(void) { return next_slab > 0; }

void whole_anew(void)
{
        next_slab = 0;
        next_tree_look = 0;
}

static void say_all_whole(void)
{
        const struct tree_common *c = (const struct tree_common *)TREE_WINDOW;

        if (atomic_exchange_explicit(copied_in_tree(), 0, memory_order_relaxed) &&
            opt.replicas > 1 && atomic_load_explicit(&c->numbers, memory_order_relaxed) > 1)
                warnx_("far memory: all nodes that answer have the copies of all processes again");
}

/* The slab is none that is looked at, or nobody wants a copy of it. */
static bool is_whole(uint32_t i)
{
        const struct copies c = { .units = (char *)TREE_WINDOW, .self = CONTROL->tree_number };
        const struct slab *s = &CONTROL->slabs[i];

        return s->kind != SLAB_REMOTE || !copies_any_wanting(&c, far_slab(i), i, s->pages);
}

void whole_look(int64_t now)
{
        if (now < next_tree_look || !atomic_load_explicit(copied_in_tree(), memory_order_relaxed))
                return;
        unsigned left = SLABS_LOOKED_AT;
        for (; left && next_slab < CONTROL->nslabs && is_whole(next_slab); left--)
                next_slab++;
        if (!left)
                return;                 /* the next step goes on */
        if (next_slab >= CONTROL->nslabs)
                say_all_whole();
        next_slab = 0;
        next_tree_look = now + TREE_LOOK_MS;
}
