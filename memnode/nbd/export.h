/*
 * Named exports and leases: which client uses which memory.  Any thread.
 */
#ifndef MEMNODE_NBD_EXPORT_H
#define MEMNODE_NBD_EXPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "memnode/nbd/name.h"

struct account;
struct party;
struct nbd_export {
        char *base;                             /* constant while a client is attached */
        uint64_t size;
        struct account *account;
        /* A client has written there, or has read the status: it has pages there, or will have.
         * Relaxed: it publishes no other data. */
        _Atomic bool used;
};

/* Takes memory for the named exports and starts the thread that frees leases.  More than once is
 * fine.  0, or -errno with a sentence. */
int nbd_exports_open(char *why, size_t n);
/* Names the leases in use that end with memnode.  kept: those of members do not. */
void nbd_exports_lose(bool kept);
/* Ends that thread.  Memory stays where it is: the process is about to end. */
void nbd_exports_close(void);
/* The export of that name, attached: to be detached once.  party: for whom a lease counts that is
 * made, and whose connections are counted before.  who: the connection that asks for it; the caller
 * must end stale ones before it answers (nbd_export_current()).  0, or NBD_REP_ERR_... with a
 * sentence in *text: then nothing was made. */
uint32_t nbd_export_attach(const char *name, size_t len, struct party *party,
                           struct nbd_export **e, struct nbd_who *who, const char **text);
/* No newer connection of that member and link was admitted, and the member was not cut. */
bool nbd_export_current(struct nbd_export *e, const struct nbd_who *who);
/* What the answer to CREATE says of the export: "incarnation ..."; "" for one without. */
#define NBD_DESCRIPTION 40
void nbd_export_describe(const struct nbd_export *e, char text[NBD_DESCRIPTION]);
/* For the log: its name, or the lease as far as it may show, with its owner and size. */
#define NBD_EXPORT_TEXT 160
const char *nbd_export_text(const struct nbd_export *e, char text[NBD_EXPORT_TEXT]);
/* after the last one, a lease stays for the grace time */
void nbd_export_detach(struct nbd_export *e);
/* nbd_export_detach() for a client that ends properly (DISC): after the last one, the lease ends,
 * unless members are awaited */
void nbd_export_leave(struct nbd_export *e);
/* Only the export's size; takes no memory, so a GO may still fail.  *e: NULL, or the lease of
 * which members were cut, attached: the caller must end their connections before it answers. */
uint32_t nbd_export_look(const char *name, size_t len, uint64_t *size, struct nbd_export **e,
                         const char **text);
/* The i-th name of the list; NULL: no more. */
const char *nbd_export_listed(unsigned i);
/* Its clients are members of a process tree: it has a status behind its last byte (nodeproto.h). */
bool nbd_export_has_status(const struct nbd_export *e);
/* No lease is made from here on. */
void nbd_export_drain(void);
/* How many leases there are, and how many were abandoned since the start. */
unsigned nbd_export_leases(uint64_t *abandoned);
/* How many leases with members' pages lost their last user during the last DRAIN_GONE_MS. */
unsigned nbd_export_just_gone(void);

#endif
