/*
 * The list of connections, as far as a connection is ended by the thread of another.  Any thread.
 */
#ifndef MEMNODE_NBD_FENCE_H
#define MEMNODE_NBD_FENCE_H

#include "memnode/nbd/export.h"

struct nbd_fenced {
        int fd;                                 /* its socket */
        struct nbd_export *e;                   /* NULL: it uses none */
        struct nbd_who who;                     /* guarded by fence.c's lock once e is set */
        /* Set under that lock.  Relaxed: the thread that sets it waits, under that lock, until this
         * connection's thread has left. */
        _Atomic bool cut;
        /* Its member has said that it cannot move away.  Relaxed. */
        _Atomic bool stays;
        struct nbd_fenced *next;
};
/* Into the list, with fd. */
void nbd_fence_enter(struct nbd_fenced *c);
/* Leaves the export, closes the socket, and takes the connection out of the list.  Its thread's
 * last call. */
void nbd_fence_exit(struct nbd_fenced *c);
/* nbd_export_attach() for a party, and the end of the connections that this one replaces. */
uint32_t nbd_fence_attach(struct nbd_fenced *c, struct party *party, const char *name, size_t len,
                          const char **text);
/* The connection uses its export no longer.  goodbye: it ends properly. */
void nbd_fence_leave(struct nbd_fenced *c, bool goodbye);
/* After nbd_export_look() cut members of this lease: ends their connections, and detaches it. */
uint32_t nbd_fence_cut(struct nbd_export *e, const char **text);
bool nbd_fence_is_cut(const struct nbd_fenced *c);
unsigned nbd_fence_count(void);         /* of connections */
/* Waits up to ms for all connections to end; how many are left. */
unsigned nbd_fence_wait(unsigned ms);
/* Members of leases with pages that have neither moved nor said that they cannot; say: is called
 * with a connection of each. */
unsigned nbd_fence_members(void (*say)(const struct nbd_fenced *c));
/* shutdown() of the sockets of members. */
void nbd_fence_break(void);
/* shutdown() of all sockets. */
void nbd_fence_shut(int how);

#endif
