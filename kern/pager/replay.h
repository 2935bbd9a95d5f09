/*
 * Where a vCPU is in the order of a recorded run (`--replay`), and which pages come next.
 *
 * Pure logic over the table of include/recorded.h.  Each vCPU has a stream of its own.  Its cursor
 * moves through the events as pages that it waits for are found there: to the nearest event of the
 * page.  It moves far only if some faults agree on where to, since a page may be needed at many
 * events, or just once out of order.
 */
#ifndef VMRUN_REPLAY_H
#define VMRUN_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include "recorded.h"

#define REPLAY_NEAR   32                /* events that one fault may pass over */
#define REPLAY_AGREE  3                 /* faults that must agree before the cursor moves further */
#define REPLAY_AHEAD  256               /* events that are looked at beyond the cursor, at most */

/* The vCPU waits for this page, or uses a marker for the first time; asked: the page was asked for
 * ahead.  False: the order does not tell the next pages. */
bool replay_at(const struct replay *r, struct replay_stream *s, uint64_t page, bool asked);

/* The next page to be asked for, which is then behind `ahead`; 0: none for now. */
uint64_t replay_next(const struct replay *r, struct replay_stream *s);

#endif
