/*
 * The names of NBD leases, as clients write them.  Pure: the fuzzer and the unit tests compile it
 * alone.
 */
#include <errno.h>
#include <string.h>
#include "members.h"
#include "nbd/name.h"

#define PAGE    4096u

/* The rest of a name. */
struct rest { const char *at; size_t len; };

static bool skip(struct rest *r, char c)
{
        if (!r->len || *r->at != c)
                return false;
        r->at++;
        r->len--;
        return true;
}

/* A number from 1 on; decimal, as printf would write it, so that a lease has one name only. */
static bool number(struct rest *r, uint64_t *v, uint64_t most)
{
        bool any = false;

        *v = 0;
        if (r->len && *r->at == '0')
                return false;
        for (; r->len && *r->at >= '0' && *r->at <= '9'; r->at++, r->len--, any = true)
                if (__builtin_mul_overflow(*v, 10, v) ||
                    __builtin_add_overflow(*v, (uint64_t)(*r->at - '0'), v))
                        return false;
        return any && *v <= most;
}

static int digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex(struct rest *r, size_t digits, uint64_t *v)
{
        if (r->len < digits)
                return false;
        *v = 0;
        for (size_t i = 0; i < digits; i++) {
                int d = digit(r->at[i]);
                if (d < 0)
                        return false;
                *v = *v << 4 | (uint64_t)d;
        }
        r->at += digits;
        r->len -= digits;
        return true;
}

static bool size(struct rest *r, struct nbd_lease_name *l)
{
        return number(r, &l->size, UINT64_MAX) && l->size % PAGE == 0;
}

/* MEMBER-LINK-GENERATION */
static bool who(struct rest *r, struct nbd_who *w)
{
        uint64_t link, generation;

        if (!number(r, &w->member, UINT64_MAX) || !skip(r, '-') ||
            !number(r, &link, MEMBER_LINKS) || !skip(r, '-') ||
            !number(r, &generation, UINT32_MAX))
                return false;
        w->link = (unsigned)link - 1;
        w->generation = (uint32_t)generation;
        return true;
}

static bool range(struct rest *r, uint64_t *first, uint64_t *last)
{
        return number(r, first, UINT64_MAX) && skip(r, '.') && number(r, last, UINT64_MAX) &&
               *first <= *last;
}

static bool ranges(struct rest *r, struct nbd_lease_name *l)
{
        uint64_t first, last;

        l->ranges = r->at;
        do
                if (!range(r, &first, &last))
                        return false;
        while (skip(r, ','));
        l->ranges_len = (size_t)(r->at - l->ranges);
        return true;
}

bool nbd_lease_range(struct nbd_lease_name *l, uint64_t *first, uint64_t *last)
{
        struct rest r = { l->ranges, l->ranges_len };

        if (!range(&r, first, last))
                return false;
        skip(&r, ',');
        l->ranges = r.at;
        l->ranges_len = r.len;
        return true;
}

int nbd_lease_parse(const char *name, size_t len, struct nbd_lease_name *l)
{
        static const char *const verbs[] = {
                [NBD_LEASE] = "lease-", [NBD_CREATE] = "create-", [NBD_JOIN] = "join-",
                [NBD_CUT] = "cut-",
        };
        struct rest r = { name, len };
        uint64_t half;
        bool ok;

        memset(l, 0, sizeof(*l));
        while (l->verb < NBD_VERBS &&
               (len < strlen(verbs[l->verb]) ||
                memcmp(name, verbs[l->verb], strlen(verbs[l->verb])) != 0))
                l->verb++;
        if (l->verb == NBD_VERBS)
                return -ENOENT;
        r.at += strlen(verbs[l->verb]);
        r.len -= strlen(verbs[l->verb]);
        const char *secret = r.at;
        if (!hex(&r, NBD_LEASE_HEX / 2, &half) || !hex(&r, NBD_LEASE_HEX / 2, &half) ||
            !skip(&r, '-'))
                return -EINVAL;
        memcpy(l->hex, secret, NBD_LEASE_HEX);
        switch (l->verb) {
        case NBD_LEASE:
                ok = size(&r, l);
                break;
        case NBD_CREATE:
                ok = size(&r, l) && skip(&r, '-') && who(&r, &l->who);
                break;
        case NBD_JOIN:
                ok = hex(&r, 16, &l->incarnation) && l->incarnation && skip(&r, '-') &&
                     who(&r, &l->who);
                break;
        default:
                ok = hex(&r, 16, &l->incarnation) && l->incarnation && skip(&r, '-') &&
                     ranges(&r, l);
        }
        return ok && !r.len ? 0 : -EINVAL;
}
