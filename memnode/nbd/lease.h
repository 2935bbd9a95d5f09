/*
 * Leases, for the files that make, keep and end them: export.c and kept.c.
 */
#ifndef MEMNODE_NBD_LEASE_H
#define MEMNODE_NBD_LEASE_H

#include <pthread.h>
#include "memnode/members.h"
#include "memnode/nbd/export.h"

struct lease {
        /* first: each nbd_export without a name in the settings is a lease */
        struct nbd_export e;
        char hex[NBD_LEASE_HEX];
        uint64_t incarnation;                   /* 0: of a client without members */
        struct members members;
        unsigned users;                         /* attached, waiting to be, or cutting */
        /* A client was attached, and the log has not said yet that the last one is gone. */
        bool has_client;
        /* one thread is taking the memory; the others wait */
        bool making;
        uint32_t error;                         /* if making it failed: no user stays */
        const char *text;
        int64_t since, until;                   /* ms: users == 0 since then; it goes then */
        struct lease *next;
};

extern pthread_mutex_t nbd_leases_lock;
extern struct lease *nbd_leases;                /* guarded by it */

/* Account and memory for an export, which counts for the party; NULL: for none.  0, or an error
 * with a sentence. */
uint32_t nbd_export_take(struct nbd_export *e, const char *owner, struct party *party,
                         const char **text);
/* The lease has no user any more: its grace time begins.  With the lock. */
void nbd_lease_let_go(struct lease *l);
/* For the log: the lease, as far as it may show, its owner and size. */
const char *nbd_lease_text(const struct lease *l, char text[NBD_EXPORT_TEXT]);

#endif
