#include <netinet/in.h>
#include <nettle/hmac.h>
#include <nettle/sha2.h>
#include <string.h>
#include "common/proof.h"
#include "common/secret.h"

#define LABEL 16
typedef struct hmac_sha256_ctx hash;

/* Labels have one length, so that what follows never looks like part of one. */
static void begin(hash *h, const void *secret, size_t n, const char label[LABEL])
{
        hmac_sha256_set_key(h, n, secret);
        hmac_sha256_update(h, LABEL, (const uint8_t *)label);
}

static void add(hash *h, const void *bytes, size_t n) { hmac_sha256_update(h, n, bytes); }

/* The key is left nowhere on the stack. */
static void end(hash *h, void *to, size_t n)
{
        hmac_sha256_digest(h, n, to);
        explicit_bzero(h, sizeof(*h));
}

void proof_address(uint8_t address[PROOF_ADDRESS], const struct sockaddr *a)
{
        memset(address, 0, PROOF_ADDRESS);
        if (a->sa_family == AF_INET6) {
                memcpy(address, &((const struct sockaddr_in6 *)a)->sin6_addr, PROOF_ADDRESS);
        } else if (a->sa_family == AF_INET) {
                address[10] = address[11] = 0xff;
                memcpy(address + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
        }
}

uint64_t proof_mark(const char *name)
{
        struct sha256_ctx h;
        uint64_t mark;

        sha256_init(&h);
        sha256_update(&h, strlen(name), (const uint8_t *)name);
        sha256_digest(&h, sizeof(mark), (uint8_t *)&mark);
        return mark ? mark : 1;
}

static void of_request(uint8_t proof[NODE_PROOF], struct node_private p,
                       const uint8_t address[PROOF_ADDRESS], uint32_t qpn, const void *secret,
                       size_t n)
{
        hash h;

        memset(p.proof, 0, sizeof(p.proof));
        begin(&h, secret, n, "vmrun request  ");
        add(&h, &p, sizeof(p));
        add(&h, address, PROOF_ADDRESS);
        add(&h, &qpn, sizeof(qpn));
        end(&h, proof, NODE_PROOF);
}

void proof_request(struct node_private *p, const uint8_t address[PROOF_ADDRESS], uint32_t qpn,
                   const void *secret, size_t n)
{
        of_request(p->proof, *p, address, qpn, secret, n);
}

bool proof_request_holds(const struct node_private *p, const uint8_t address[PROOF_ADDRESS],
                         uint32_t qpn, const void *secret, size_t n)
{
        uint8_t proof[NODE_PROOF];

        of_request(proof, *p, address, qpn, secret, n);
        return secret_same(proof, p->proof, sizeof(proof));
}

static void of_answer(uint8_t proof[NODE_PROOF], struct node_private answer,
                      const uint8_t asked[NODE_PROOF], const void *secret, size_t n)
{
        hash h;

        memset(answer.proof, 0, sizeof(answer.proof));
        begin(&h, secret, n, "vmrun answer   ");
        add(&h, &answer, sizeof(answer));
        add(&h, asked, NODE_PROOF);
        end(&h, proof, NODE_PROOF);
}

void proof_answer(struct node_private *answer, const uint8_t asked[NODE_PROOF], const void *secret,
                  size_t n)
{
        of_answer(answer->proof, *answer, asked, secret, n);
}

bool proof_answer_holds(const struct node_private *answer, const uint8_t asked[NODE_PROOF],
                        const void *secret, size_t n)
{
        uint8_t proof[NODE_PROOF];

        of_answer(proof, *answer, asked, secret, n);
        return secret_same(proof, answer->proof, sizeof(proof));
}

uint64_t proof_cookie(const uint8_t key[32], const uint8_t address[PROOF_ADDRESS], uint64_t slot)
{
        uint64_t cookie;
        hash h;

        begin(&h, key, 32, "vmrun cookie   ");
        add(&h, address, PROOF_ADDRESS);
        add(&h, &slot, sizeof(slot));
        end(&h, &cookie, sizeof(cookie));
        return cookie ? cookie : 1;
}

void proof_secret(uint8_t secret[NODE_SECRET], const void *key, size_t n, uint64_t id,
                  const uint8_t client[NODE_NONCE], const uint8_t node[NODE_NONCE])
{
        hash h;

        begin(&h, key, n, "vmrun secret   ");
        add(&h, &id, sizeof(id));
        add(&h, client, NODE_NONCE);
        add(&h, node, NODE_NONCE);
        end(&h, secret, NODE_SECRET);
}
