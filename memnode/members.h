/*
 * Which processes may use the leases of a client, and which connections of theirs are stale.
 *
 * A client is a tree of processes that share leases.  A member is one of those processes, by a
 * number that the tree counts up from 1 and gives once.  A member makes each of its connections
 * ("links") again when it breaks, with a higher generation.  Networks deliver late: a message on an
 * old connection, or a request for such a connection, must not take effect after a newer message.
 * So a generation is admitted once, and only if it is above all that were admitted on this link
 * before; and a member that is cut is admitted never again.  The caller ends the older connection
 * before it answers.  docs/protocol.md says which rules rely on that, and why it is enough.
 *
 * No locks here: the caller has one.  Errors are -errno.
 */
#ifndef MEMNODE_MEMBERS_H
#define MEMNODE_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMBER_LINKS    4               /* connections of a member, at most */
/* members of a client that connected and were not cut, at most: a tree has 1,024 processes, and
 * has those that ended cut now and then */
#define MEMBERS_KNOWN   8192

struct member {
        uint64_t number;
        uint32_t generation[MEMBER_LINKS];      /* the highest admitted; 0: none yet */
        bool awaited;                           /* see members_await() */
};
/* All zero: no member has connected yet. */
struct members {
        struct member *known;           /* in order */
        size_t nknown, room;
        /* Numbers that were cut, as ranges in order that do not touch.  Numbers are given in order
         * and nearly all end, so there are hardly more ranges than living members. */
        struct members_range { uint64_t first, last; } *cut;
        size_t ncut, cut_room;
};

void members_free(struct members *m);
/* What members_admit() would say, but for want of memory or room. */
int members_may_admit(const struct members *m, uint64_t member, unsigned link,
                      uint32_t generation);
/* Admits a connection.  -EPERM: the member was cut; -ESTALE: not above what was admitted before;
 * -EINVAL: member 0, generation 0, or no such link; -EUSERS: MEMBERS_KNOWN; -ENOMEM. */
int members_admit(struct members *m, uint64_t member, unsigned link, uint32_t generation);
/* This connection was admitted, and no later one made it stale. */
bool members_is_current(const struct members *m, uint64_t member, unsigned link,
                        uint32_t generation);
/* The connections of this member break because memnode ends, so it will be back: until it is
 * admitted again or cut, the goodbye of other members does not end the lease. */
void members_await(struct members *m, uint64_t member);
bool members_awaits(const struct members *m);
/* Cuts the members first to last, whether they ever connected or not.  May be repeated.  -EINVAL:
 * an empty range, or 0; -EUSERS: more ranges than MEMBERS_KNOWN; -ENOMEM: nothing changed. */
int members_cut(struct members *m, uint64_t first, uint64_t last);
bool members_is_cut(const struct members *m, uint64_t member);

#endif
