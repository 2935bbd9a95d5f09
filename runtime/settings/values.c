/*
 * Reads values: numbers, times, words, flags, texts, rates.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "settings/values.h"

#define SECONDS_MAX   3600
#define BANDWIDTH_MIN 1000000
#define BANDWIDTH_MAX 1000000000000000

int number_parse(const char *text, unsigned least, unsigned most, unsigned *number,
                 char why[SETTING_WHY])
{
        size_t digits = strspn(text, "0123456789");
        unsigned long n = digits && digits < 10 ? strtoul(text, NULL, 10) : ~0ul;

        if (text[digits] || n < least || n > most) {
                snprintf(why, SETTING_WHY, "give a whole number from %u to %u", least, most);
                return -EINVAL;
        }
        *number = (unsigned)n;
        return 0;
}

int seconds_parse(const char *text, unsigned *ms, char why[SETTING_WHY])
{
        size_t whole = strspn(text, "0123456789");
        const char *fraction = text[whole] == '.' ? text + whole + 1 : text + whole;
        size_t places = strspn(fraction, "0123456789");

        if (!whole || whole > 6 || places > 3 || fraction[places] ||
            (text[whole] == '.' && !places))
                goto bad;
        unsigned long n = strtoul(text, NULL, 10) * 1000, unit = 100;
        for (size_t i = 0; i < places; i++, unit /= 10)
                n += unit * (unsigned long)(fraction[i] - '0');
        if (n < 100 || n > SECONDS_MAX * 1000ul)
                goto bad;
        *ms = (unsigned)n;
        return 0;
bad:
        snprintf(why, SETTING_WHY, "give seconds from 0.1 to %u, as in 10 or 0.5", SECONDS_MAX);
        return -EINVAL;
}

int word_parse(const char *text, const char *const words[], int *number, char why[SETTING_WHY])
{
        for (int i = 0; words[i]; i++)
                if (strcmp(words[i], text) == 0) {
                        *number = i;
                        return 0;
                }
        size_t at = (size_t)snprintf(why, SETTING_WHY, "give ");
        for (int i = 0; words[i]; i++)
                at += (size_t)snprintf(why + at, SETTING_WHY - at, "%s%s",
                                       !i             ? ""
                                       : words[i + 1] ? ", "
                                                      : " or ",
                                       words[i]);
        return -EINVAL;
}

int flag_parse(const char *text, bool *flag, char why[SETTING_WHY])
{
        static const char *const words[] = { "no", "yes", NULL };
        int n, err = word_parse(text, words, &n, why);
        if (!err)
                *flag = n;
        return err;
}

int text_parse(const char *text, const char **copy, char why[SETTING_WHY])
{
        if (!*text) {
                snprintf(why, SETTING_WHY,
                         "the value is missing: give one, or leave the whole setting out");
                return -EINVAL;
        }
        *copy = strdup(text);
        if (*copy)
                return 0;
        snprintf(why, SETTING_WHY, "out of memory: free some on this host");
        return -ENOMEM;
}

int bandwidth_parse(const char *text, uint64_t *rate, char why[SETTING_WHY])
{
        static const char units[] = "KMGT";
        size_t whole = strspn(text, "0123456789");
        const char *fraction = text[whole] == '.' ? text + whole + 1 : text + whole;
        size_t places = strspn(fraction, "0123456789");
        const int last = toupper((unsigned char)fraction[places]);
        const char *unit = last ? strchr(units, last) : NULL;

        if (!whole || whole > 15 || places > 3 || (text[whole] == '.' && !places) ||
            (fraction[places] && (!unit || fraction[places + 1])))
                goto bad;
        uint64_t thousandths = strtoull(text, NULL, 10) * 1000;
        for (size_t i = 0, each = 100; i < places; i++, each /= 10)
                thousandths += (uint64_t)(fraction[i] - '0') * each;
        for (const char *u = units; unit && u <= unit; u++)
                if (__builtin_mul_overflow(thousandths, 1000, &thousandths))
                        goto bad;
        if (thousandths / 1000 < BANDWIDTH_MIN || thousandths / 1000 > BANDWIDTH_MAX)
                goto bad;
        *rate = thousandths / 1000;
        return 0;
bad:
        snprintf(why, SETTING_WHY,
                 "give bytes a second, from 1M to 1000T with K, M, G or T for powers of 1000, as "
                 "in 12.5G");
        return -EINVAL;
}
