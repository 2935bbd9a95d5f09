#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/bad_option.h"
#include "common/near.h"

#define OPTIONS_MOST 128

/* The option that `given`, with its dashes and maybe a value, misspells; NULL: none. */
static const char *near_option(const char *given, const struct option *options)
{
        const char *words[OPTIONS_MOST];
        size_t n = 0;

        given += strspn(given, "-");
        for (; options[n].name && n < OPTIONS_MOST; n++)
                words[n] = options[n].name;
        char *name = strndup(given, strcspn(given, "="));
        const char *near = name ? near_word(name, words, n) : NULL;
        free(name);
        return near;
}

void bad_option(char **argv, int c, const struct option *options, const char *help, char *why,
                size_t n)
{
        const char *given = argv[optind - 1];
        char letter[3] = { '-', (char)optopt };

        /* Of -cahce, getopt refuses the c, and is not done with the word. */
        if (optopt && argv[optind] && argv[optind][0] == '-' && argv[optind][1] == optopt)
                given = argv[optind];
        else if (optopt && strncmp(given, "--", 2) != 0)
                given = letter;
        const char *near = near_option(given, options);
        if (c == ':')
                snprintf(why, n, "%s: a value is missing: see %s", given, help);
        else if (optopt && strncmp(given, "--", 2) == 0)
                snprintf(why, n, "%s: this option takes no value: leave out what follows the =",
                         given);
        else if (near)
                snprintf(why, n, "%s: no such option: did you mean --%s?", given, near);
        else if (strncmp(given, "--", 2) == 0)
                snprintf(why, n, "%s: no such option, or an abbreviation of several: see %s", given,
                         help);
        else
                snprintf(why, n, "%s: no such option: see %s", given, help);
}
