/*
 * Members of a client: admitted, awaited, cut.  Sorted arrays, searched by halving.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "memnode/members.h"

void members_free(struct members *m)
{
        free(m->known);
        free(m->cut);
        *m = (struct members){ 0 };
}

/* The first range that does not end before `number`. */
static size_t range_at(const struct members *m, uint64_t number)
{
        size_t low = 0, high = m->ncut;

        while (low < high) {
                size_t middle = (low + high) / 2;
                if (m->cut[middle].last < number)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

bool members_is_cut(const struct members *m, uint64_t member)
{
        size_t i = range_at(m, member);
        return i < m->ncut && m->cut[i].first <= member;
}

/* Room for one more entry of `size` bytes, at most MEMBERS_KNOWN. */
static int grow(void **list, size_t n, size_t *room, size_t size)
{
        if (n < *room)
                return 0;
        if (n >= MEMBERS_KNOWN)
                return -EUSERS;
        size_t more = *room ? 2 * *room : 16;
        void *p = realloc(*list, more * size);
        if (!p)
                return -ENOMEM;
        *list = p;
        *room = more;
        return 0;
}

/* The first known member whose number is not less. */
static size_t known_at(const struct members *m, uint64_t number)
{
        size_t low = 0, high = m->nknown;

        while (low < high) {
                size_t middle = (low + high) / 2;
                if (m->known[middle].number < number)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static struct member *find(const struct members *m, uint64_t number)
{
        size_t i = known_at(m, number);
        return i < m->nknown && m->known[i].number == number ? &m->known[i] : NULL;
}

/* A new one.  Numbers come nearly in order, so there is little to move. */
static int know(struct members *m, uint64_t number)
{
        int err = grow((void **)&m->known, m->nknown, &m->room, sizeof(*m->known));
        if (err)
                return err;
        size_t i = known_at(m, number);
        memmove(&m->known[i + 1], &m->known[i], (m->nknown - i) * sizeof(*m->known));
        m->known[i] = (struct member){ .number = number };
        m->nknown++;
        return 0;
}

bool members_is_current(const struct members *m, uint64_t member, unsigned link,
                        uint32_t generation)
{
        const struct member *known = find(m, member);
        return known && link < MEMBER_LINKS && known->generation[link] == generation;
}

int members_may_admit(const struct members *m, uint64_t member, unsigned link,
                      uint32_t generation)
{
        if (!member || link >= MEMBER_LINKS || !generation)
                return -EINVAL;
        if (members_is_cut(m, member))
                return -EPERM;
        const struct member *known = find(m, member);
        return known && generation <= known->generation[link] ? -ESTALE : 0;
}

int members_admit(struct members *m, uint64_t member, unsigned link, uint32_t generation)
{
        int err = members_may_admit(m, member, link, generation);

        if (!err && !find(m, member))
                err = know(m, member);
        if (err)
                return err;
        find(m, member)->generation[link] = generation;
        find(m, member)->awaited = false;
        return 0;
}

void members_await(struct members *m, uint64_t member)
{
        struct member *known = find(m, member);

        if (known)                      /* else it was cut */
                known->awaited = true;
}

bool members_awaits(const struct members *m)
{
        for (size_t i = 0; i < m->nknown; i++)
                if (m->known[i].awaited)
                        return true;
        return false;
}

int members_cut(struct members *m, uint64_t first, uint64_t last)
{
        if (!first || first > last)
                return -EINVAL;
        /* The ranges that the new one overlaps or touches: [from, to). */
        size_t from = range_at(m, first - 1), to = from;
        while (to < m->ncut && (last == UINT64_MAX || m->cut[to].first <= last + 1))
                to++;
        struct members_range whole = { first, last };
        if (from == to) {
                int err = grow((void **)&m->cut, m->ncut, &m->cut_room, sizeof(*m->cut));
                if (err)
                        return err;
        } else {
                whole.first = m->cut[from].first < first ? m->cut[from].first : first;
                whole.last = m->cut[to - 1].last > last ? m->cut[to - 1].last : last;
        }
        size_t after = from == to ? from : to;
        memmove(&m->cut[from + 1], &m->cut[after], (m->ncut - after) * sizeof(*m->cut));
        m->ncut += 1 - (to - from);
        m->cut[from] = whole;

        size_t kept = 0;
        for (size_t i = 0; i < m->nknown; i++)
                if (m->known[i].number < first || m->known[i].number > last)
                        m->known[kept++] = m->known[i];
        m->nknown = kept;
        return 0;
}
