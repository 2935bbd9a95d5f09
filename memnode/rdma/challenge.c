#include <string.h>
#include <sys/random.h>
#include "rdma/challenge.h"

_Static_assert(KEY_SECRET_MIN == NODE_SECRET, "the decoy is as long as what it stands for");

bool challenge_begin(struct challenge *c)
{
        memset(c->taken, 0, sizeof(c->taken));
        return getrandom(c->key, sizeof(c->key), 0) == sizeof(c->key) &&
               getrandom(c->decoy, sizeof(c->decoy), 0) == sizeof(c->decoy);
}

static uint64_t slot_of(int64_t now) { return (uint64_t)now / COOKIE_MS; }

uint64_t challenge_cookie(const struct challenge *c, const struct asker *who, int64_t now)
{
        return proof_cookie(c->key, who->address, slot_of(now));
}

/* The slot in which the cookie is valid no more; 0: it is not valid now. */
static uint64_t valid_until(const struct challenge *c, uint64_t cookie, const struct asker *who,
                            int64_t now)
{
        uint64_t slot = slot_of(now);

        if (cookie == proof_cookie(c->key, who->address, slot))
                return slot + 2;
        return slot && cookie == proof_cookie(c->key, who->address, slot - 1) ? slot + 1 : 0;
}

int challenge_take(struct challenge *c, const struct node_private *p, const struct asker *who,
                   int64_t now)
{
        uint64_t until = valid_until(c, p->cookie, who, now);
        struct taken *room = NULL;
        unsigned others = 0;

        /* Without a secret anybody can make another proof: to keep this one would help nobody. */
        if (p->kind == NODE_NEW && !keyring_is_used())
                return 0;
        for (unsigned i = 0; i < PROOFS_MAX; i++) {
                struct taken *t = &c->taken[i];
                if (t->forgotten <= slot_of(now)) {
                        room = t;
                        continue;
                }
                if (memcmp(t->proof, p->proof, NODE_PROOF) == 0)
                        return NODE_ESTALE;
                others += memcmp(t->address, who->address, PROOF_ADDRESS) == 0;
        }
        if (!room || others >= PROOFS_ADDRESS)
                return NODE_EBUSY;
        room->forgotten = until;
        memcpy(room->proof, p->proof, NODE_PROOF);
        memcpy(room->address, who->address, PROOF_ADDRESS);
        return 0;
}

int challenge_new(const struct challenge *c, const struct node_private *p,
                  const struct asker *who, int64_t now, struct key *key)
{
        bool anyone = !keyring_is_used();

        *key = (struct key){ .bytes = 0 };
        if (!valid_until(c, p->cookie, who, now))
                return NODE_ECOOKIE;
        if (anyone && p->id)
                return NODE_ENOKEYS;
        bool known = anyone || keyring_find_mark(p->id, key);
        /* Also for a key that is not known, so that the time does not tell which names are. */
        bool holds = proof_request_holds(p, who->address, who->qpn,
                                         known ? key->secret : c->decoy,
                                         known ? key->bytes : sizeof(c->decoy));
        return known && holds ? 0 : NODE_EKEY;
}

int challenge_client(const struct challenge *c, const struct node_private *p,
                     const struct asker *who, int64_t now, const uint8_t secret[NODE_SECRET])
{
        if (!valid_until(c, p->cookie, who, now))
                return NODE_ECOOKIE;
        bool holds = proof_request_holds(p, who->address, who->qpn, secret ? secret : c->decoy,
                                         NODE_SECRET);
        return secret && holds ? 0 : NODE_EUNKNOWN;
}
