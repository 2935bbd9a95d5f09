/*
 * See rebuild.h.
 */
#include <stddef.h>
#include "base/options.h"
#include "base/ticker.h"
#include "far/rebuild.h"

#define LOOK_MS  200
/* With a single copy only nodes that ask to be left matter, and --io inline has no thread that
 * hears them. */
#define RARE_MS  500

static struct vm *looked_after;         /* NULL: not used yet */
static void (*work)(struct vm *vm);

static void look(void) { work(looked_after); }

static struct ticker ticker = { .name = "vmrun-rebuild", .ms = LOOK_MS, .tick = look, TICKER_INIT };

void rebuild_start(struct vm *vm, void (*rebuild)(struct vm *vm))
{
        looked_after = vm;
        work = rebuild;
        ticker.ms = opt.replicas > 1 ? LOOK_MS : RARE_MS;
        ticker_start(&ticker);
}

void rebuild_rest(void) { ticker_rest(&ticker); }

void rebuild_go_on(void)
{
        if (looked_after)
                rebuild_start(looked_after, work);
}

void rebuild_hold(void) { ticker_hold(&ticker); }
void rebuild_release(void) { ticker_release(&ticker); }

void rebuild_forked(void)
{
        ticker_forked(&ticker);
        looked_after = NULL;
}
