/*
 * Finds the word that is nearest to a mistake, by edit distance.
 */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include "common/near.h"

#define NEAR_MOST 31                    /* bytes of a word that are compared */

/* How many bytes must be changed, added or removed to make b of a (Levenshtein). */
static unsigned distance(const char *a, const char *b)
{
        unsigned row[NEAR_MOST + 1], n = (unsigned)strlen(b);

        for (unsigned j = 0; j <= n; j++)
                row[j] = j;
        for (unsigned i = 1; *a; a++, i++) {
                unsigned corner = row[0];
                row[0] = i;
                for (unsigned j = 1; j <= n; j++) {
                        unsigned change = corner + (*a != b[j - 1]);
                        unsigned add = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
                        corner = row[j];
                        row[j] = change < add ? change : add;
                }
        }
        return row[n];
}

const char *near_word(const char *text, const char *const words[], size_t n)
{
        char low[NEAR_MOST + 1];
        const char *nearest = NULL;
        unsigned least = 3;
        size_t len = strlen(text);

        if (len > NEAR_MOST)
                return NULL;
        for (size_t i = 0; i <= len; i++)
                low[i] = text[i] == '_' ? '-' : (char)tolower((unsigned char)text[i]);
        for (size_t i = 0; i < n; i++) {
                size_t whole = strlen(words[i]);
                bool begins = whole > 3 && strncmp(low, words[i], whole) == 0;
                unsigned d = begins ? 0 : distance(low, words[i]);
                if (d < least && d <= whole / 2) {
                        nearest = words[i];
                        least = d;
                }
        }
        return nearest;
}
