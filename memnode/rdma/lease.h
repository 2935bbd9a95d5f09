/*
 * The memory of leases: taken and registered, and given back.  This takes long, so the worker does
 * it (worker.h).  Any thread may, if no other one has that lease, or all of that client.
 *
 * [I] Memory goes back to the pool only when no network card can reach it any more.  First the data
 * connections of the client end, then the registration; then the pool gets the memory and zeroes it
 * before it is given out again.  A registration that cannot be ended keeps its memory for as long
 * as memnode runs.
 *
 * Of a client only name, account, protection domain and the leases that are named here are used.
 */
#ifndef MEMNODE_RDMA_LEASE_H
#define MEMNODE_RDMA_LEASE_H

#include "memnode/rdma/rdma.h"

/* 0: *made is a lease without a number and in no list; -EAGAIN: memory is being zeroed that may do;
 * or enum node_error with why.  *claimed, false at first: the bytes count as held until the next
 * try, or account_unclaim(). */
int lease_make(const struct client *cl, uint64_t bytes, bool *claimed, struct lease **made,
               char *why, size_t n);
/* Ends the registration, gives the memory back and frees the lease. */
void lease_end(const struct client *cl, struct lease *l);
/* Makes the protection domain, and registers all leases of a client that was taken over.  False:
 * there is neither, and a warning. */
bool leases_register(struct client *cl, struct ibv_context *verbs);
/* Ends all registrations, then the protection domain.  False: a registration cannot be ended. */
bool leases_deregister(struct client *cl);
void lease_free(struct lease *l);       /* whose memory the account gives back */

#endif
