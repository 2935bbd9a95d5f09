/*
 * Checks of requests that came over the network, field by field.
 */
#include <stdio.h>
#include <string.h>
#include "rdma/parse.h"

#define LEASE_MOST (1ull << 30)

static size_t size_of(unsigned type)
{
        switch (type) {
        case NODE_HELLO:
                return sizeof(struct node_hello);
        case NODE_LEASE:
                return sizeof(struct node_lease);
        case NODE_RELEASE:
                return sizeof(struct node_release);
        case NODE_FIND:
                return sizeof(struct node_find);
        case NODE_CUT:
                return sizeof(struct node_cut);
        case NODE_MOVED:
                return sizeof(struct node_moved);
        case NODE_GOODBYE:
                return sizeof(struct node_plain);
        default:
                return 0;
        }
}

static int check_request(const struct node_request *rq, char *why, size_t n)
{
        if (rq->type == NODE_HELLO && !memchr(rq->hello.name, 0, sizeof(rq->hello.name))) {
                snprintf(why, n, "a HELLO with a name that does not end");
                return NODE_EPROTO;
        }
        if (rq->type == NODE_LEASE &&
            (!rq->lease.bytes || rq->lease.bytes % 4096 || rq->lease.bytes > LEASE_MOST)) {
                snprintf(why, n,
                         "a LEASE of %llu bytes: it must be whole pages of 4 KiB, 1 GiB at most",
                         (unsigned long long)rq->lease.bytes);
                return NODE_EPROTO;
        }
        if (rq->type == NODE_MOVED && rq->moved.moved > 1) {
                snprintf(why, n, "a MOVED of %u: it is 0 or 1", rq->moved.moved);
                return NODE_EPROTO;
        }
        if (rq->type == NODE_CUT && (!rq->cut.count || rq->cut.count > NODE_RANGES)) {
                snprintf(why, n, "a CUT of %u ranges: it has 1 to %u", rq->cut.count, NODE_RANGES);
                return NODE_EPROTO;
        }
        for (unsigned i = 0; rq->type == NODE_CUT && i < rq->cut.count; i++)
                if (!rq->cut.range[i].first || rq->cut.range[i].first > rq->cut.range[i].last) {
                        snprintf(why, n, "a CUT of members that cannot be");
                        return NODE_EPROTO;
                }
        return 0;
}

int node_request_parse(const void *bytes, size_t length, struct node_request *rq, char *why,
                       size_t n)
{
        struct node_header h;

        if (length < sizeof(h)) {
                snprintf(why, n, "a message of %zu bytes: less than its header", length);
                return NODE_EPROTO;
        }
        memcpy(&h, bytes, sizeof(h));
        if (h.magic != NODE_MAGIC) {
                snprintf(why, n, "a message that does not begin as those of this protocol do");
                return NODE_EPROTO;
        }
        if (h.version != NODE_VERSION) {
                snprintf(why, n,
                         "a message of version %u, and this is version %u: use vmrun and memnode "
                         "of the same release",
                         h.version, NODE_VERSION);
                return NODE_EVERSION;
        }
        size_t size = size_of(h.type);
        if (!size) {
                snprintf(why, n, "a message of type %u, which no client sends", h.type);
                return NODE_EPROTO;
        }
        if (h.length != size || length != size) {
                snprintf(why, n,
                         "a message of type %u that says %u bytes and has %zu: it must have %zu",
                         h.type, h.length, length, size);
                return NODE_EPROTO;
        }
        memset(rq, 0, sizeof(*rq));
        rq->type = h.type;
        /* the union's members have the same header, and size is that of the right one */
        memcpy(&rq->hello, bytes, size);
        return check_request(rq, why, n);
}

int node_private_parse(const void *bytes, size_t length, struct node_private *p, char *why,
                       size_t n)
{
        memset(p, 0, sizeof(*p));
        if (bytes)
                memcpy(p, bytes, length < sizeof(*p) ? length : sizeof(*p));
        if (length < offsetof(struct node_private, kind)) {
                snprintf(why, n, "a connection request without the private data of this protocol");
                return NODE_EPROTO;
        }
        if (p->magic != NODE_MAGIC) {
                snprintf(why, n, "a connection request that is not of this protocol");
                return NODE_EPROTO;
        }
        if (p->version != NODE_VERSION) {
                snprintf(why, n,
                         "a connection request of version %u, and this is version %u: use vmrun "
                         "and memnode of the same release",
                         p->version, NODE_VERSION);
                return NODE_EVERSION;
        }
        if (p->length != sizeof(*p) || length < sizeof(*p)) {
                snprintf(why, n, "a connection request that says %u bytes: it must have %zu",
                         p->length, sizeof(*p));
                return NODE_EPROTO;
        }
        if (p->kind != NODE_NEW && p->kind != NODE_CONTROL && p->kind != NODE_DATA) {
                snprintf(why, n, "a connection request of kind %u, which there is not", p->kind);
                return NODE_EPROTO;
        }
        if (!p->member || !p->generation) {
                snprintf(why, n, "a connection request that does not say whose it is");
                return NODE_EPROTO;
        }
        if (p->kind != NODE_NEW && !p->id) {
                snprintf(why, n, "a connection request that names no client");
                return NODE_EPROTO;
        }
        if (p->kind == NODE_DATA && !p->depth) {
                snprintf(why, n, "a data connection without depth");
                return NODE_EPROTO;
        }
        return 0;
}
