/*
 * The thread that finds places on other nodes for slabs of lost nodes.  See rebuild.h.
 */
#include <stddef.h>
#include "base/options.h"
#include "base/ticker.h"
#include "far/rebuild.h"

#define LOOK_MS  200
/* With a single copy only draining nodes matter; with --io inline no other thread hears them. */
#define RARE_MS  500

/* By rebuild_start(), before the thread exists.  Each lease stores these values once more. */
static struct {
        struct vm *vm;                  /* NULL: the nodes are not used yet */
        void (*look_at_nodes)(struct vm *vm);
} rebuild;

static void look(void) { rebuild.look_at_nodes(rebuild.vm); }

static struct ticker ticker = { .name = "vmrun-rebuild", .ms = LOOK_MS, .tick = look, TICKER_INIT };

void rebuild_start(struct vm *vm, void (*look_at_nodes)(struct vm *vm))
{
        rebuild.vm = vm;
        rebuild.look_at_nodes = look_at_nodes;
        ticker.ms = opt.replicas > 1 ? LOOK_MS : RARE_MS;
        ticker_start(&ticker);
}

void rebuild_rest(void) { ticker_rest(&ticker); }

void rebuild_go_on(void)
{
        if (rebuild.vm)
                rebuild_start(rebuild.vm, rebuild.look_at_nodes);
}

void rebuild_hold(void) { ticker_hold(&ticker); }
void rebuild_release(void) { ticker_release(&ticker); }

void rebuild_forked(void)
{
        ticker_forked(&ticker);
        rebuild.vm = NULL;
}
