/*
 * The names of NBD leases, as clients write them.  Pure: the fuzzer and the unit tests compile it
 * alone.
 */
#include <errno.h>
#include "nbd/nbd.h"

#define PAGE    4096u

/* Decimal, as printf would write it, so that a lease has one name only. */
static bool decimal(const char *s, size_t len, uint64_t *v)
{
        *v = 0;
        if (len == 0 || s[0] == '0')
                return false;
        for (size_t i = 0; i < len; i++)
                if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(*v, 10, v) ||
                    __builtin_add_overflow(*v, (uint64_t)(s[i] - '0'), v))
                        return false;
        return true;
}

int nbd_lease_parse(const char *name, size_t len, struct nbd_lease_name *l)
{
        static const char prefix[] = "lease-";
        const size_t before = sizeof(prefix) - 1, digits = before + NBD_LEASE_HEX;

        if (len < before || memcmp(name, prefix, before) != 0)
                return -ENOENT;
        if (len < digits + 2 || name[digits] != '-')
                return -EINVAL;
        for (size_t i = before; i < digits; i++)
                if (!((name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f')))
                        return -EINVAL;
        memcpy(l->hex, name + before, NBD_LEASE_HEX);

        const char *size = name + digits + 1;
        size_t rest = len - digits - 1;
        const char *dash = memchr(size, '-', rest);
        size_t size_len = dash ? (size_t)(dash - size) : rest;
        if (!decimal(size, size_len, &l->size) || l->size % PAGE)
                return -EINVAL;
        l->token = dash ? dash + 1 : NULL;
        l->token_len = dash ? rest - size_len - 1 : 0;
        return 0;
}
