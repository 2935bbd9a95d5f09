/*
 * What vmrun and memnode show each other over RDMA instead of sending secrets (nodeproto.h): proofs
 * are HMAC-SHA256, cut to their first bytes.  Each purpose has a label of its own in what is
 * hashed, so that no proof passes for one of another kind.
 *
 * Addresses are those of IPv6; one of IPv4 is mapped to it.
 */
#ifndef COMMON_PROOF_H
#define COMMON_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nodeproto.h"

struct sockaddr;
#define PROOF_ADDRESS 16
/* The address without its port; of any family but those of IP all zero. */
void proof_address(uint8_t address[PROOF_ADDRESS], const struct sockaddr *a);

/* How requests name a key: the first 8 bytes of SHA-256 of its name.  Never 0. */
uint64_t proof_mark(const char *name);

/* Fills in p->proof, over all else of *p, the client's address and the number of its queue pair.
 * secret: n bytes, which may be none. */
void proof_request(struct node_private *p, const uint8_t address[PROOF_ADDRESS], uint32_t qpn,
                   const void *secret, size_t n);
/* Does the request have that proof? */
bool proof_request_holds(const struct node_private *p, const uint8_t address[PROOF_ADDRESS],
                         uint32_t qpn, const void *secret, size_t n);

/* The same for an acceptance.  asked: the proof of the request that it answers. */
void proof_answer(struct node_private *answer, const uint8_t asked[NODE_PROOF], const void *secret,
                  size_t n);
bool proof_answer_holds(const struct node_private *answer, const uint8_t asked[NODE_PROOF],
                        const void *secret, size_t n);

/* The cookie of an address in a slot of time, of memnode's random key.  Never 0. */
uint64_t proof_cookie(const uint8_t key[32], const uint8_t address[PROOF_ADDRESS], uint64_t slot);

/* The secret of a client, from that of its key, which may have no bytes, its id, and the nonces of
 * HELLO and WELCOME. */
void proof_secret(uint8_t secret[NODE_SECRET], const void *key, size_t n, uint64_t id,
                  const uint8_t client[NODE_NONCE], const uint8_t node[NODE_NONCE]);

#endif
