/*
 * Clients and their leases.
 */
#ifndef MEMNODE_RDMA_CLIENT_H
#define MEMNODE_RDMA_CLIENT_H

#include "memnode/rdma/rdma.h"

extern struct client *clients;

struct party;
/* party: for whom it counts, of which it takes a hold of its own.  Its secret is the caller's to
 * fill in. */
struct client *client_new(struct device *d, const char *name, struct party *party, char *why,
                          size_t n, enum node_error *error);
struct client *client_find(uint64_t id);        /* NULL */
/* Ends its data connections; the worker ends its registrations, and gives its memory back, once it
 * has done all else of this client.  Its control connections then belong to no client. */
void client_end(struct client *cl);
void client_loses(const struct client *cl);     /* says that its leases end with memnode */
void client_tick(uint64_t now);         /* ends clients that have been gone for too long */
/* A client that was taken over has come through this device: has its leases registered there.
 * False: that takes a while, or cannot be done now, with a warning. */
bool client_attach(struct client *cl, struct device *d);
/* Begins no such registration any more; one that has begun ends before worker_wait() returns. */
void client_attach_stop(struct client *cl);
/* 0 or enum node_error */
int client_find_slab(const struct client *cl, uint64_t slab, struct node_grant *g, char *why,
                     size_t n);
/* Fills in what a new client may lease, and what is free. */
void client_room(const struct client *cl, struct node_welcome *w);
/* Whether it may have one lease more than it has and asks for: 0 or enum node_error. */
int client_may_lease(const struct client *cl, char *why, size_t n);
void client_leases(struct client *cl, struct lease *l, struct node_grant *g);
/* It has the lease no more, and the caller has; NULL: there is none. */
struct lease *client_release(struct client *cl, uint64_t slab, char *why, size_t n);
/* Makes a client whose id, secret, leases and members the caller fills in, and has no connections,
 * device or registrations; NULL with why. */
struct client *client_taken_over(const char *name, struct party *party, char *why, size_t n);
/* Its connections are ended and its registrations gone, but it keeps its leases and is in no list:
 * for kept.c, when the worker has nothing to do.  False: a registration cannot be ended. */
bool client_detach(struct client *cl);

#endif
