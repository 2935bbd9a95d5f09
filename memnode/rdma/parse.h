/*
 * Messages of include/nodeproto.h as bytes from the network: parses and checks requests.  Pure
 * functions.
 */
#ifndef MEMNODE_RDMA_PARSE_H
#define MEMNODE_RDMA_PARSE_H

#include <stddef.h>
#include "nodeproto.h"

/* A request that may be acted upon: every field is within its limits. */
struct node_request {
        enum node_type type;            /* HELLO, LEASE, RELEASE, FIND, CUT, MOVED, GOODBYE */
        union {
                struct node_hello hello;        /* name ends with a NUL */
                struct node_lease lease;        /* bytes: whole pages, 1 to 2^18 of them */
                struct node_release release;
                struct node_find find;
                struct node_cut cut;            /* 1 to NODE_RANGES ranges, none empty */
                struct node_moved moved;        /* 0 or 1 */
        };
};

/* Parses a message of `length` bytes: 0, or enum node_error (NODE_EPROTO, NODE_EVERSION) with a
 * sentence in why. */
int node_request_parse(const void *bytes, size_t length, struct node_request *rq, char *why,
                       size_t n);
/* node_request_parse() for the private data of a connection request; its `length` bytes may include
 * padding.  If it fails, *p has what there was of it: as much as the rejection needs. */
int node_private_parse(const void *bytes, size_t length, struct node_private *p, char *why,
                       size_t n);

#endif
