/*
 * Whether a connection request is to be believed: its cookie and its proof (nodeproto.h).
 *
 * A request whose cookie is not valid costs a hash and an answer, and nothing of it is kept.  A
 * cookie shows that the sender gets what is sent to it; its address is what it says (rdma_cm).  A
 * proof is taken once: it is remembered for as long as its cookie is valid.
 *
 * Pure but for the time, the keys and random numbers; one thread.
 */
#ifndef MEMNODE_RDMA_CHALLENGE_H
#define MEMNODE_RDMA_CHALLENGE_H

#include "common/proof.h"
#include "memnode/admission/keyring.h"

#define COOKIE_MS 10000                 /* a slot: a cookie is valid in its own and the next */
#define PROOFS_MAX 8192                 /* remembered at one time */
/* of these, of one address: else one client that connects all the time would keep out the others */
#define PROOFS_ADDRESS (PROOFS_MAX / 4 * 3)

/* Who asks, as rdma_cm says. */
struct asker { uint8_t address[PROOF_ADDRESS]; uint32_t qpn; };

struct challenge {
        uint8_t key[32];                /* of cookies */
        uint8_t decoy[KEY_SECRET_MIN];  /* the secret of those who are not known */
        /* forgotten: the slot in which its cookie is valid no more; 0: the entry is free */
        struct taken {
                uint64_t forgotten;
                uint8_t proof[NODE_PROOF], address[PROOF_ADDRESS];
        } taken[PROOFS_MAX];
};

/* False: no random numbers are left. */
bool challenge_begin(struct challenge *c);
/* A cookie for the client.  now: ms, from 0 on. */
uint64_t challenge_cookie(const struct challenge *c, const struct asker *who, int64_t now);
/* Judges a request NEW.  0: *key is its key, without a name if clients need none; or enum
 * node_error.  The caller overwrites *key. */
int challenge_new(const struct challenge *c, const struct node_private *p,
                  const struct asker *who, int64_t now, struct key *key);
/* Judges a request CONTROL or DATA.  secret: of the client with that id; NULL: there is none. */
int challenge_client(const struct challenge *c, const struct node_private *p,
                     const struct asker *who, int64_t now, const uint8_t secret[NODE_SECRET]);
/* Takes the proof of a request that was believed, and would be admitted: so what is refused takes
 * no room.  0; NODE_ESTALE: it was taken before; NODE_EBUSY: there is no room. */
int challenge_take(struct challenge *c, const struct node_private *p, const struct asker *who,
                   int64_t now);

#endif
