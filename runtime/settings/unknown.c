/*
 * Keys that do not exist: what was probably meant.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "common/near.h"
#include "settings/unknown.h"

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
                 const char *what, char why[SETTING_WHY])
{
        const char *word = near_word(key, words, n);
        char unit = word ? unit_of(key, word, value) : 0;

        size_t at = (size_t)snprintf(why, SETTING_WHY, "%s: %s", what, word ? "" : "give ");

        if (unit)
                snprintf(why + at, SETTING_WHY - at, "did you mean %s = %s%c?", word, value, unit);
        else if (word)
                snprintf(why + at, SETTING_WHY - at, "did you mean %s?", word);
        for (size_t i = 0; !word && i < n; i++)
                at += (size_t)snprintf(why + at, SETTING_WHY - at, "%s%s", words[i],
                                       i + 2 < n ? ", " : i + 1 < n ? " or " : "");
}
