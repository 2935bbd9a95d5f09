/*
 * Finds the word that is nearest to a mistake, by edit distance.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "settings/unknown.h"

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

/* For "cache-mb" and "512" instead of "cache": M, and so on; 0: no unit, or no plain number. */
static char unit_of(const char *text, const char *word, const char *value)
{
        const char *unit = strlen(text) > strlen(word) ? text + strlen(word) + 1 : "";
        char first = (char)toupper((unsigned char)*unit);

        if (!first || !strchr("KMGT", first) || !*value || value[strspn(value, "0123456789")])
                return 0;
        unit++;
        return !*unit || strcasecmp(unit, "b") == 0 || strcasecmp(unit, "ib") == 0 ? first : 0;
}

void unknown_say(const char *key, const char *value, const char *const words[], size_t n,
                 const char *where, char why[SETTING_WHY])
{
        const char *word = near_word(key, words, n);
        char unit = word ? unit_of(key, word, value) : 0;

        size_t at = (size_t)snprintf(why, SETTING_WHY, "unknown key%s: %s", where,
                                     word ? "" : "give ");

        if (unit)
                snprintf(why + at, SETTING_WHY - at, "did you mean %s = %s%c?", word, value, unit);
        else if (word)
                snprintf(why + at, SETTING_WHY - at, "did you mean %s?", word);
        for (size_t i = 0; !word && i < n; i++)
                at += (size_t)snprintf(why + at, SETTING_WHY - at, "%s%s", words[i],
                                       i + 2 < n ? ", " : i + 1 < n ? " or " : "");
}
