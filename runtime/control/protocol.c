/*
 * Reads and checks the lines of requests and of answers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "control/protocol.h"

enum argument { NONE, MAY, MUST };

static const struct {
        const char *name;
        unsigned forms;                 /* bit n: enum form n; 0: it takes no form */
        enum argument argument;
} verbs[] = {
        [VERB_ABOUT]  = { "about", 1 << FORM_TEXT | 1 << FORM_JSON, NONE },
        [VERB_STATS]  = { "stats",
                          1 << FORM_TEXT | 1 << FORM_JSON | 1 << FORM_FLAT | 1 << FORM_PROM, NONE },
        [VERB_RESET]  = { "reset", 0, NONE },
        [VERB_SAMPLE] = { "sample", 0, NONE },
        [VERB_GET]    = { "get", 1 << FORM_TEXT | 1 << FORM_JSON, MAY },
        [VERB_SET]    = { "set", 0, MUST },
        [VERB_NODES]  = { "nodes", 1 << FORM_TEXT | 1 << FORM_JSON, NONE },
        [VERB_FROM]   = { "from", 0, MUST },
        [VERB_ADD]    = { "add", 0, MUST },
        [VERB_SCRUB]  = { "scrub", 1 << FORM_TEXT | 1 << FORM_JSON | 1 << FORM_FLAT, MAY },
};
static const char *const forms[] = {
        [FORM_TEXT] = "text", [FORM_JSON] = "json", [FORM_FLAT] = "flat", [FORM_PROM] = "prom",
};

/* The word at *at, which is moved to what follows the blank behind it. */
static char *word(char **at)
{
        char *w = *at, *end = w + strcspn(w, " ");

        *at = *end ? end + 1 : end;
        *end = 0;
        return w;
}

static int find(const char *name, const char *const *first, size_t step, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(*(const char *const *)((const char *)first + i * step), name) == 0)
                        return (int)i;
        return -1;
}

int request_parse(char *line, struct request *r, char why[REQUEST_WHY])
{
        const char *name = word(&line);
        int v = find(name, &verbs[0].name, sizeof(verbs[0]), sizeof(verbs) / sizeof(verbs[0]));

        if (v < 0) {
                snprintf(why, REQUEST_WHY, "'%.32s' is no request: vmctl and vmrun are of "
                         "different versions", name);
                return -EINVAL;
        }
        *r = (struct request){ .verb = (enum verb)v };
        if (verbs[v].forms) {
                const char *form = word(&line);
                int f = find(form, &forms[0], sizeof(forms[0]), sizeof(forms) / sizeof(forms[0]));
                if (f < 0 || !(verbs[v].forms & 1u << f)) {
                        snprintf(why, REQUEST_WHY, "%s: there is no form '%.32s' of it", name,
                                 form);
                        return -EINVAL;
                }
                r->form = (enum form)f;
        }
        r->argument = line;
        if (*line ? verbs[v].argument == NONE : verbs[v].argument == MUST) {
                snprintf(why, REQUEST_WHY, "%s: %s", name,
                         *line ? "it takes no argument" : "its argument is missing");
                return -EINVAL;
        }
        return 0;
}

char *inbox_line(struct inbox *in, int *err)
{
        char *end = memchr(in->text, '\n', in->have);

        *err = 0;
        if (!end) {
                if (in->have == sizeof(in->text))
                        *err = -EMSGSIZE;
                return NULL;
        }
        *end = 0;
        if (strlen(in->text) == (size_t)(end - in->text))
                return in->text;
        *err = -EINVAL;
        return NULL;
}

void inbox_next(struct inbox *in, size_t used)
{
        in->have -= used;
        memmove(in->text, in->text + used, in->have);
}

int head_parse(const char *line, bool *ok, size_t *size)
{
        const char *digits;

        *ok = strncmp(line, "ok ", 3) == 0;
        if (!*ok && strncmp(line, "error ", 6) != 0)
                return -EPROTO;
        digits = strchr(line, ' ') + 1;
        size_t n = strspn(digits, "0123456789");
        if (!n || n > 10 || digits[n])
                return -EPROTO;
        *size = strtoul(digits, NULL, 10);
        return *size <= ANSWER_MOST ? 0 : -EPROTO;
}
