/*
 * Before a source of the I/O side that a test includes (test_repair.c, test_scrub.c): a control
 * page and the maps of a tree of its own, a clock that the test moves, and no limit of rate.
 */
#ifndef TEST_SIDE_HOOKS_H
#define TEST_SIDE_HOOKS_H

#include <stdbool.h>
#include <stdint.h>
#include <abi_control.h>
#include "common/clock.h"
#include "far/walk.h"
#include "include/allocator.h"

static struct control control;
static char *maps;                      /* of a tree with one slab */
#undef CONTROL
#define CONTROL (&control)
#undef TREE_WINDOW
#define TREE_WINDOW maps
#define bounce_pages(n) 4u

static int64_t clock_ms;

int64_t now_ms(void) { return clock_ms; }
bool rate_allows(const rate_t *r, uint64_t bytes, int64_t now, unsigned pages)
{
        (void)r, (void)bytes, (void)now, (void)pages;
        return true;
}
void rate_take(rate_t *r, uint64_t bytes, int64_t now) { (void)r, (void)bytes, (void)now; }

#endif
