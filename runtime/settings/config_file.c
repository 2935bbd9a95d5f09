/*
 * The configuration file: which one is read, and its lines.  inih parses the lines; section
 * headings are read here, because inih does not report a section without keys and cuts long names.
 * settings.c interprets the values.
 */
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/options.h"
#include "settings/config_file.h"
#include "settings/node_draft.h"
#include "settings/settings.h"

#define CONFIG_SYSTEM "/etc/vmrun.conf"

struct config {
        const char *path;
        FILE *f;
        struct options *o;
        unsigned line;
        enum { IN_NONE, IN_VMRUN, IN_NODE } section;
        bool seen_vmrun;
        unsigned given;                 /* bit n: setting number n was given */
        struct node_draft node;         /* IN_NODE: of this section */
        unsigned node_line;
        char *why;                      /* the first mistake */
        size_t why_size;
        int err;
};

/* Only the first mistake is reported: later ones may follow from it. */
static void __attribute__((format(printf, 3, 4)))
mistake(struct config *c, unsigned line, const char *fmt, ...)
{
        va_list ap;

        if (c->err)
                return;
        c->err = -EINVAL;
        int n = snprintf(c->why, c->why_size, "%s:%u: ", c->path, line);
        if (n < 0 || (size_t)n >= c->why_size)
                return;
        va_start(ap, fmt);
        vsnprintf(c->why + n, c->why_size - (size_t)n, fmt, ap);
        va_end(ap);
}

static void end_section(struct config *c)
{
        char why[SETTING_WHY];

        if (c->section != IN_NODE)
                return;
        c->section = IN_NONE;
        if (!c->err && node_draft_check(&c->node, why) != 0)
                mistake(c, c->node_line, "[node %s]: %s", c->node.node.name, why);
        if (c->err)
                node_option_free(&c->node.node);
        else
                c->o->nodes[c->o->nnodes++] = c->node.node;
}

static void begin_node(struct config *c, const char *name)
{
        char *origin;

        if (!*name) {
                mistake(c, c->line, "[node]: the node has no name: give one, as in [node m1]");
                return;
        }
        for (unsigned i = 0; i < c->o->nnodes; i++)
                if (strcmp(c->o->nodes[i].name, name) == 0) {
                        mistake(c, c->line,
                                "[node %s]: this node was given before: leave one out or name it "
                                "otherwise",
                                name);
                        return;
                }
        if (c->o->nnodes == NODES_MAX) {
                mistake(c, c->line, "[node %s]: more than %u nodes: give fewer", name, NODES_MAX);
                return;
        }
        node_draft_init(&c->node);
        c->node.node.name = strdup(name);
        c->node_line = c->line;
        c->section = IN_NODE;
        if (c->node.node.name && asprintf(&origin, "%s:%u: node %s", c->path, c->line, name) >= 0)
                c->node.node.origin = origin;
        else
                mistake(c, c->line, "out of memory: free some on this host");
}

/* The heading in `text`, which begins with '['; it is cut to its name in place. */
static void begin_section(struct config *c, char *text)
{
        text[strcspn(text, "\r\n")] = '\0';
        char *name = text + 1 + strspn(text + 1, " \t"), *end = strchr(name, ']');

        end_section(c);
        if (!end) {
                mistake(c, c->line, "the ] is missing after %.64s", text);
                return;
        }
        const char *rest = end + 1 + strspn(end + 1, " \t");
        if (*rest && *rest != ';' && *rest != '#') {
                mistake(c, c->line, "something follows the ]: put it on a line of its own");
                return;
        }
        while (end > name && strchr(" \t", end[-1]))
                end--;
        *end = '\0';
        if (strcmp(name, "vmrun") == 0) {
                if (c->seen_vmrun)
                        mistake(c, c->line,
                                "[vmrun]: this section was given before: put all settings into "
                                "one");
                c->seen_vmrun = true;
                c->section = IN_VMRUN;
        } else if (strncmp(name, "node", 4) == 0 && (!name[4] || strchr(" \t", name[4]))) {
                begin_node(c, name + 4 + strspn(name + 4, " \t"));
        } else {
                mistake(c, c->line, "[%.64s]: unknown section: give [vmrun] or [node NAME]", name);
        }
}

/* For ini_parse_stream, instead of fgets: counts lines, refuses those that inih would misread, and
 * passes the others on without leading blanks, which inih would take for a continuation of the line
 * above.  A heading is passed on as an empty line. */
static char *next_line(char *text, int size, void *arg)
{
        struct config *c = arg;
        char *line = NULL;
        size_t room = 0;

        if (c->err)
                return NULL;
        errno = 0;
        ssize_t n = getline(&line, &room, c->f);
        if (n < 0) {
                if (!feof(c->f))
                        mistake(c, c->line + 1, "cannot be read: %s: name a file of text",
                                strerror(errno));
                free(line);
                return NULL;
        }
        c->line++;
        char *start = line;
        if (c->line == 1 && strncmp(start, "\xef\xbb\xbf", 3) == 0)     /* a byte-order mark */
                start += 3;
        start += strspn(start, " \t\r\f\v");
        bool shown = false;
        if (strlen(line) != (size_t)n)
                mistake(c, c->line, "there is a NUL byte in it: give text");
        else if (*start == '[')
                begin_section(c, start);
        else if (*start != '#' && strlen(start) >= (size_t)size)
                mistake(c, c->line, "longer than %d bytes: shorten it", size - 2);
        else
                shown = *start != '#' && *start != ';';
        snprintf(text, (size_t)size, "%s", shown ? start : "\n");
        free(line);
        return c->err ? NULL : text;
}

/* For inih, a # behind a value is part of the value, which is seldom meant. */
static bool has_remark(struct config *c, const char *key, const char *value)
{
        const char *mark = strchr(value, '#');
        size_t n;

        while (mark && (mark == value || !strchr(" \t", mark[-1])))
                mark = strchr(mark + 1, '#');
        if (!mark)
                return false;
        for (n = (size_t)(mark - value); n && strchr(" \t", value[n - 1]); n--)
                ;
        mistake(c, c->line, "%s = %s: behind a value, remarks begin with ; (# is for whole lines): "
                "write %s = %.*s ;%s", key, value, key, (int)n, value, mark + 1);
        return true;
}

static bool has_quotes(struct config *c, const char *key, const char *value)
{
        size_t n = strlen(value);

        if (n < 2 || !strchr("\"'", *value) || value[n - 1] != *value)
                return false;
        mistake(c, c->line, "%s = %s: values stand without quotes: write %s = %.*s", key, value,
                key, (int)n - 2, value + 1);
        return true;
}

/* inih's handler: one key.  Its own idea of the section is not needed. */
static int take_key(void *arg, const char *section, const char *key, const char *value)
{
        struct config *c = arg;
        char why[SETTING_WHY];
        int i;

        (void)section;
        if (c->err)
                return 0;
        if (has_remark(c, key, value) || has_quotes(c, key, value))
                return 0;
        switch (c->section) {
        case IN_NONE:
                mistake(c, c->line,
                        "%s = %s: stands in no section: put it under [vmrun] or [node NAME]", key,
                        value);
                break;
        case IN_VMRUN:
                i = setting_find(key);
                if (i < 0 && (strncmp(key, "node", 4) == 0 || strcmp(key, "url") == 0))
                        snprintf(why, sizeof(why), "unknown key in [vmrun]: a node has a section "
                                 "of its own: [node NAME], and below it url = %.64s", value);
                else if (i < 0)
                        setting_unknown(key, value, "unknown key in [vmrun]", why);
                if (i < 0)
                        mistake(c, c->line, "%s = %s: %s", key, value, why);
                else if (c->given & 1u << i)
                        mistake(c, c->line, "%s = %s: given twice: leave one out", key, value);
                else if (setting_set(c->o, i, value, why) != 0)
                        mistake(c, c->line, "%s = %s: %s", key, value, why);
                else
                        c->given |= 1u << i;
                break;
        case IN_NODE:
                if (node_draft_set(&c->node, key, value, why) != 0)
                        mistake(c, c->line, "%s = %s: %s", key, value, why);
                break;
        }
        return !c->err;
}

int config_read(struct options *o, const char *path, char *why, size_t n)
{
        struct config c = { .path = path, .o = o, .why = why, .why_size = n };

        c.f = fopen(path, "re");
        if (!c.f) {
                int err = -errno;
                snprintf(why, n, "%s: cannot be read: %s", path, strerror(-err));
                return err;
        }
        int bad = ini_parse_stream(next_line, &c, take_key, &c);
        if (bad > 0)
                mistake(&c, (unsigned)bad, "neither a section nor a setting: give KEY = VALUE");
        else if (bad < 0)
                mistake(&c, c.line, "out of memory: free some on this host");
        end_section(&c);
        fclose(c.f);
        return c.err;
}

/* Does the file exist, as far as this user can see? */
static bool exists(const char *path)
{
        struct stat st;
        return stat(path, &st) == 0;
}

const char *config_default(void)
{
        static char path[PATH_MAX];
        const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        int n = -1;

        /* The XDG base directory specification: a relative path must be ignored. */
        if (xdg && *xdg == '/')
                n = snprintf(path, sizeof(path), "%s/vmrun.conf", xdg);
        else if (home && *home == '/')
                n = snprintf(path, sizeof(path), "%s/.config/vmrun.conf", home);
        if (n > 0 && (size_t)n < sizeof(path) && exists(path))
                return path;
        return exists(CONFIG_SYSTEM) ? CONFIG_SYSTEM : NULL;
}
