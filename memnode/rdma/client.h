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
/* Ends its data connections and registrations and gives its memory back, in this order.  Its
 * control connections then belong to no client. */
void client_end(struct client *cl);
void client_tick(uint64_t now);         /* ends clients that have been gone for too long */
/* A client that was taken over has come through this device: registers its leases there.  False: it
 * cannot be done now, with a warning. */
bool client_attach(struct client *cl, struct device *d);
/* 0 or enum node_error */
int client_find_slab(const struct client *cl, uint64_t slab, struct node_grant *g, char *why,
                     size_t n);
int client_lease(struct client *cl, uint64_t bytes, struct node_grant *g, char *why, size_t n);
int client_release(struct client *cl, uint64_t slab, char *why, size_t n);
/* Makes a client whose id, secret, leases and members the caller fills in, and has no connections,
 * device or registrations; NULL with why. */
struct client *client_taken_over(const char *name, struct party *party, char *why, size_t n);
/* Its connections are ended and its registrations gone, but it keeps its leases and is in no list:
 * for kept.c.  False: a registration cannot be ended. */
bool client_detach(struct client *cl);

#endif
