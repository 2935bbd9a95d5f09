/*
 * Queues to a node that kern drives by itself: it posts the READ of a page for which a fault waits,
 * and takes its completion, without the host.  Where no queue can take a request, it goes the way
 * of all others (far/rings.h, far/timed.h).
 *
 * The vCPUs share the queues of a node.
 *
 * [I] A request under way has a poller: the vCPU that asked, which spins and then sleeps for a
 * bounded time.  Others that wait for the same page poll, too.
 * [I] A queue's lock is held to post a request, or to take a completion, and never over an exit.
 * Who holds it may be a vCPU that does not run: so it is only tried.
 * [I] From direct_read() to the end of page_fetched() the frame is the request's.  Its entry in the
 * table of requests becomes free last.
 * [I] A request has one owner: the queue, while it is ASKED; then who took it, under the lock: kern
 * by its completion, or the host once the queue is DOWN, which reads the page by its own way.  kern
 * gives a page that did not come right to the host, as a read of the vCPU that asked.
 */
#ifndef VMRUN_DIRECT_QUEUE_H
#define VMRUN_DIRECT_QUEUE_H

#include "abi_slab.h"
#include "abi_direct.h"
#include "base/kern.h"
#include "pager/frame.h"

/* The DIRECT_QUEUES queues of a node are used from now on.  By one vCPU at a time. */
void direct_add(unsigned node, struct direct_queue *const queue[DIRECT_QUEUES]);
bool direct_has(unsigned node);
/* Makes the queues of the nodes of a set, over the network, for the host to fill in.  Once a node:
 * where the pool has no page left, it has none.  By one vCPU at a time. */
void direct_make(uint64_t nodes);
/* Asks one of the slab's nodes for the page of a slot, if they have a good copy.  It ends by
 * page_fetched().  Returns the queue that it posted the request to; NULL: none can take it now. */
struct direct_queue *direct_read(const struct slab *s, uint64_t slot, frame_t f);
/* The card learns of the READs that this vCPU has posted, if that takes an exit.  While no fault
 * is published. */
void direct_ring_bell(void);
static inline void direct_ring(void)
{
        if (vcpu_self.bell)
                direct_ring_bell();
}
/* Ends a fetch that is over, of the queue that this vCPU used last.  True: the page that it last
 * asked for is still under way; a hint.  Then it should poll for so long before it sleeps. */
#define DIRECT_SPIN_US 20
bool direct_poll_queue(void);
static inline bool direct_poll(void) { return vcpu_self.direct && direct_poll_queue(); }
/* Called before this vCPU sleeps on a word that is `seen` until the page for frame f comes.  Ends
 * all fetches that are over.  False: that page is in no queue.  Else sleeps for a bounded time if
 * none was over; then the caller looks again. */
bool direct_wait(const void *word, uint64_t seen, frame_t f);

#endif
