/*
 * Finds a key in the flat format.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "stats/read.h"

/* The value of the key, which ends with its line; NULL: there is none. */
static const char *find(const char *text, const char *key)
{
        size_t n = strlen(key);

        while (text && *text) {
                if (strncmp(text, key, n) == 0 && text[n] == ' ')
                        return text + n + 1;
                text = strchr(text, '\n');
                text = text ? text + 1 : NULL;
        }
        return NULL;
}

uint64_t flat_number(const char *text, const char *key)
{
        const char *v = find(text, key);

        return v ? strtoull(v, NULL, 10) : 0;
}

const char *flat_text(const char *text, const char *key, char *to, size_t n)
{
        const char *v = find(text, key);

        snprintf(to, n, "%.*s", v ? (int)strcspn(v, "\n") : 0, v ? v : "");
        return to;
}
