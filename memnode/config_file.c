/*
 * The configuration file: INI, read by inih.
 *
 *      [memnode]
 *      size = 64G
 *      listen = rdma://0.0.0.0:7471
 *      [export disk]
 *      size = 10G
 *      [client alice]
 *      quota = 16G
 */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include "config_file.h"
#include "options.h"

/* bytes of a heading, with its NUL, that inih keeps */
#define SECTION_MAX 49

struct reading {
        struct memnode_options *o;
        const char *path;
        FILE *file;
        char *why;
        /* that inih is reading: not every build of inih reports it */
        int line;
        int heading;                    /* the line of the last [section] */
        int err;                        /* the first mistake; the rest of the file is ignored */
        uint64_t seen;                  /* bit i: setting i of no list was given */
        const struct setting *settings;
};

/* fgets(), but counts lines. */
static char *read_line(char *text, int n, void *stream)
{
        struct reading *r = stream;

        if (r->err || !fgets(text, n, r->file))
                return NULL;
        r->line++;
        if (text[strspn(text, " \t")] == '[')
                r->heading = r->line;
        size_t len = strlen(text);
        if (len + 1 == (size_t)n && text[len - 1] != '\n') {
                /* inih would take the rest of the line for another line. */
                snprintf(r->why, WHY_MAX, "%s:%d: the line is longer than %d bytes: shorten it",
                         r->path, r->line, n - 2);
                r->err = -EINVAL;
                return NULL;
        }
        return text;
}

static int fail(struct reading *r, const char *name, const char *value, const char *cause)
{
        snprintf(r->why, WHY_MAX, "%.200s:%d: %.40s%s%.60s: %.180s", r->path, r->line, name,
                 *value ? " = " : "", value, cause);
        r->err = -EINVAL;
        return 0;
}

/* inih tells of a section with the first line below its heading. */
static int fail_heading(struct reading *r, const char *section, const char *cause)
{
        snprintf(r->why, WHY_MAX, "%.200s:%d: [%.60s]: %.200s", r->path, r->heading, section,
                 cause);
        r->err = -EINVAL;
        return 0;
}

static int fail_unknown(struct reading *r, const char *name)
{
        char cause[WHY_MAX];
        const char *near = setting_near(name);

        if (near)
                snprintf(cause, sizeof(cause), "there is no such setting: did you mean %s?", near);
        return fail(r, name, "", near ? cause : "there is no such setting: see memnode(8)");
}

static int in_memnode(struct reading *r, const char *name, const char *value)
{
        char cause[WHY_MAX];
        const struct setting *s = setting_find(name);

        if (!s || s->typed)
                return fail_unknown(r, name);
        uint64_t bit = 1ull << (s - setting_find("size"));
        if (!s->list && r->seen & bit)
                return fail(r, name, value, "it is given twice: leave one out");
        r->seen |= bit;
        if (s->flag && strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
                return fail(r, name, value, "give yes or no");
        if (s->flag && !strcmp(value, "no"))
                return 1;
        return s->set(r->o, value, cause) == 0 ? 1 : fail(r, name, value, cause);
}

/* Called by inih: 1 to continue. */
static int take(void *user, const char *section, const char *name, const char *value)
{
        struct reading *r = user;
        char cause[WHY_MAX];

        if (r->err)
                return 0;
        if (strlen(section) >= SECTION_MAX)
                return fail_heading(r, section, "the heading is longer than 48 bytes: give a "
                                    "shorter name");
        if (!strcmp(section, "memnode"))
                return in_memnode(r, name, value);
        if (!strncmp(section, "export ", 7) && section[7]) {
                if (strcmp(name, "size") != 0)
                        return fail(r, name, "", "an export has a size and nothing else");
                return setting_export(r->o, section + 7, value, cause) == 0
                               ? 1
                               : fail(r, section, value, cause);
        }
        if (!strncmp(section, "client ", 7) && section[7])
                return setting_client(r->o, section + 7, name, value, cause) == 0
                               ? 1
                               : fail(r, name, value, cause);
        if (!*section)
                return fail(r, name, "", "it is in no section: write [memnode] above it");
        if (!strncmp(section, "export", 6) || !strncmp(section, "client", 6))
                return fail_heading(r, section, "its name is missing: give it one, as in [export "
                                    "disk] and [client alice]");
        return fail_heading(r, section, "there is no such section: give [memnode], [export NAME] "
                            "or [client NAME]");
}

int config_read(struct memnode_options *o, const char *path, char why[WHY_MAX])
{
        struct reading r = { .o = o, .path = path, .why = why };

        r.file = fopen(path, "re");
        if (!r.file) {
                int err = -errno;
                snprintf(why, WHY_MAX, "--config %.300s: cannot be opened: %s: give the path of a "
                         "file that this user may read", path, strerror(-err));
                return err;
        }
        int bad = ini_parse_stream(read_line, &r, take, &r);
        if (!r.err && ferror(r.file)) {
                r.err = -EIO;
                snprintf(why, WHY_MAX, "--config %.300s: cannot be read: is it a file?", path);
        }
        fclose(r.file);
        if (!r.err && bad) {
                snprintf(why, WHY_MAX, "%.300s:%d: neither a [section] nor NAME = VALUE", path,
                         bad > 0 ? bad : r.line);
                r.err = -EINVAL;
        }
        return r.err;
}
