/*
 * Parties: for whom connections, leases and memory count.  A client that proved itself with a key
 * is one party with all others of that key; without keys an origin is one (origin.h).
 *
 * Any thread.
 */
#ifndef MEMNODE_PARTY_H
#define MEMNODE_PARTY_H

#include <stdbool.h>
#include <stdint.h>
#include "common/keys.h"

/* Of all parties together.  Connections: those of NBD that use an export, and control connections
 * of RDMA. */
#define PARTY_CONNECTIONS       1024u
#define PARTY_LEASES            1024u
/* What an origin may have of them, so that another one finds room. */
#define PARTY_ORIGIN_PART(most) ((most) / 4 * 3)

/* What a key's clients may have, by [client NAME] of memnode's settings. */
struct party_limits {
        char name[KEY_NAME_MAX + 1];
        uint64_t quota;                 /* bytes at most; UINT64_MAX: no limit of its own */
        uint64_t reserve;               /* bytes that no other party gets */
        unsigned connections;           /* at most */
};
/* Sets the limits of all keys, a copy of `limits`.  0 or -ENOMEM.  May be called again. */
int party_set_limits(const struct party_limits *limits, unsigned n);

struct party;
/* The party of a key, or of an origin's text; to be given back by party_put().  NULL: no memory. */
struct party *party_of_key(const char *name);
struct party *party_of_origin(const char *text);
/* The party that party_name() names, after memnode was restarted. */
struct party *party_named(const char *name);
#define PARTY_NAME (KEY_NAME_MAX + 8)
const char *party_name(const struct party *p);
struct party *party_hold(struct party *p);
void party_put(struct party *p);

/* One connection more, unless the party or all have as many as they may.  fresh: it is not for a
 * lease that is there already; the last quarter is kept for those that are.  One that is not fresh
 * may come to replace another, so a few more are let in; party_crowded() says, when the other has
 * left, whether it may stay. */
bool party_connect(struct party *p, bool fresh);
bool party_crowded(struct party *p, bool fresh);
void party_disconnect(struct party *p);
/* One lease more, in the same way. */
bool party_lease(struct party *p);
void party_unlease(struct party *p);

/* The party wants memory, of which the pool has `left`.  0: it may try to take it, and must call
 * party_took(); -EDQUOT: more than its quota; -ENOSPC: what is left is kept for others. */
int party_take(struct party *p, uint64_t bytes, uint64_t left);
/* It has taken it, or not. */
void party_took(struct party *p, uint64_t bytes, bool taken);
void party_give(struct party *p, uint64_t bytes);
/* The bytes that it might still take. */
uint64_t party_room(struct party *p, uint64_t left);

/* What a party has now. */
struct party_figures {
        char name[PARTY_NAME];          /* of a key without the word before it */
        bool has_key;
        unsigned connections, leases;
        uint64_t held, quota;           /* bytes; UINT64_MAX: it has no quota */
};
/* Those of all: an array that the caller frees, and in *n how many; NULL: none, or no memory. */
struct party_figures *party_all(unsigned *n);

#endif
