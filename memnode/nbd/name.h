/*
 * Names of leases: a client says in an export's name which lease and which connection it means.
 */
#ifndef MEMNODE_NBD_NAME_H
#define MEMNODE_NBD_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NBD_LEASE_MARK 8                /* digits of it that the log may show */
#define NBD_LEASE_HEX   32
/* Which connection this is: see members.h.  Member 0: the client tells its connections not
 * apart. */
struct nbd_who {
        uint64_t member;
        unsigned link;
        uint32_t generation;
        bool fresh;                     /* it replaces none: nbd_export_attach() sets it */
};
struct nbd_lease_name {
        enum nbd_verb {
                NBD_LEASE,                      /* made if it is not there: for any NBD client */
                NBD_CREATE,                     /* made, must not be there: by its first member */
                NBD_JOIN,                       /* by further connections of members */
                NBD_CUT,                        /* ends members, with INFO: see members_cut() */
                NBD_VERBS,
        } verb;
        /* the secret: a client that knows it has the lease */
        char hex[NBD_LEASE_HEX];
        uint64_t size;                          /* LEASE, CREATE */
        uint64_t incarnation;                   /* JOIN, CUT: what CREATE was answered */
        struct nbd_who who;                     /* CREATE, JOIN */
        /* CUT: within the name; nbd_lease_range() takes from it */
        const char *ranges;
        size_t ranges_len;
};
/*
 *   lease-HEX-BYTES
 *   create-HEX-BYTES-MEMBER-LINK-GENERATION
 *   join-HEX-INCARNATION-MEMBER-LINK-GENERATION
 *   cut-HEX-INCARNATION-FIRST.LAST[,FIRST.LAST]...
 *
 * INCARNATION has 16 hexadecimal digits, LINK counts from 1.
 * 0; -ENOENT: no name of a lease; -EINVAL: the name begins as that of a lease, but is none.
 */
int nbd_lease_parse(const char *name, size_t len, struct nbd_lease_name *l);
/* Takes the next range of members to cut.  False: there is none. */
bool nbd_lease_range(struct nbd_lease_name *l, uint64_t *first, uint64_t *last);

#endif
