/*
 * Sizes as people write them, in both directions.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "common/size.h"

int size_parse(const char *text, uint64_t *bytes)
{
        static const char units[] = "KMGT";
        uint64_t n = 0;
        unsigned shift = 0;
        const char *s = text;

        if (!isdigit((unsigned char)*s))
                return -EINVAL;
        bool over = false;
        for (; isdigit((unsigned char)*s); s++)
                over |= __builtin_mul_overflow(n, 10, &n) ||
                        __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n);
        if (*s) {
                const char *u = strchr(units, toupper((unsigned char)*s));
                if (!u)
                        return -EINVAL;
                shift = 10 * (unsigned)(u - units + 1);
                s++;
                if (strcasecmp(s, "iB") != 0 && *s)
                        return -EINVAL;
        }
        if (over || n > (uint64_t)INT64_MAX >> shift)
                return -ERANGE;
        *bytes = n << shift;
        return 0;
}

const char *size_text(uint64_t bytes, char buf[32])
{
        static const char units[] = "KMGT";
        int u = -1;
        double v = (double)bytes;
        while (v >= 1024 && u < 3) {
                v /= 1024;
                u++;
        }
        snprintf(buf, 32, v < 100 && v != (double)(uint64_t)v ? "%.1f%.1s" : "%.0f%.1s", v,
                 u < 0 ? "" : &units[u]);
        return buf;
}
