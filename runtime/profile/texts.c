/*
 * Prints a profile: as folded stacks, and as a table.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "profile/texts.h"
#include "stats/formats.h"

/* The table shows at most SITES_SHOWN places.  Behind the first SITES_ALWAYS a place must have a
 * thousandth of all faults. */
#define SITES_SHOWN   50
#define SITES_ALWAYS  10
#define CALLERS_SHOWN 3

/* ---- one stack ---- */

/* The place of the stack's i-th address.  A return address lies behind its call, so the place is
 * looked up a byte before it. */
static void place_of(struct code *c, const struct stack *s, unsigned i, struct place *p)
{
        code_place(c, s->at[i] - (i > 0), p);
        p->address += i > 0;
        p->into += i > 0;
}

static const char *file_name(const char *path)
{
        const char *slash = strrchr(path, '/');
        return slash && slash[1] ? slash + 1 : path;
}

/* ---- folded stacks ---- */

struct line { char *text; uint64_t faults; };

/* A name as flame graphs can have it: a semicolon stands between names. */
static void put_name(FILE *f, const char *name)
{
        for (; *name; name++)
                fputc(*name == ';' ? ':' : (unsigned char)*name < ' ' ? '?' : *name, f);
}

static void put_frame(FILE *f, const struct place *p)
{
        put_name(f, p->symbol ? p->symbol : file_name(p->object));
        if (!p->symbol && *p->object != '[')
                fprintf(f, "+0x%" PRIx64, p->address);
}

/* NULL: no memory. */
static char *fold(struct code *c, const struct stack *s)
{
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return NULL;
        for (unsigned i = s->n; i-- > 0;) {
                struct place p;
                place_of(c, s, i, &p);
                put_frame(f, &p);
                fputs(i ? ";" : "", f);
        }
        if (!s->n)
                fputs("[other]", f);
        bool bad = ferror(f);
        bad |= fclose(f) != 0;
        if (bad) {
                free(text);
                return NULL;
        }
        return text;
}

static int by_text(const void *a, const void *b)
{
        return strcmp(((const struct line *)a)->text, ((const struct line *)b)->text);
}

static int by_faults(const void *a, const void *b)
{
        const struct line *x = a, *y = b;
        return x->faults != y->faults ? (x->faults < y->faults) - (x->faults > y->faults)
                                      : by_text(a, b);
}

/* Merges the lines of stacks whose names are equal. */
static size_t merge_lines(struct line *line, size_t n)
{
        size_t kept = 0;

        qsort(line, n, sizeof(*line), by_text);
        for (size_t i = 0; i < n; i++)
                if (kept && strcmp(line[kept - 1].text, line[i].text) == 0) {
                        line[kept - 1].faults += line[i].faults;
                        free(line[i].text);
                } else {
                        line[kept++] = line[i];
                }
        qsort(line, kept, sizeof(*line), by_faults);
        return kept;
}

int profile_folded(const struct profile_of *of, FILE *f)
{
        const struct stacks *all = of->stacks;
        struct line *line = calloc(all->n + 1, sizeof(*line));
        int err = line ? 0 : -ENOMEM;
        size_t n = 0;

        for (; n < all->n && !err; n++) {
                line[n] = (struct line){ fold(of->code, &all->s[n]), all->s[n].faults };
                if (!line[n].text)
                        err = -ENOMEM;
        }
        if (!err)
                n = merge_lines(line, n);
        for (size_t i = 0; i < n; i++) {
                if (!err)
                        fprintf(f, "%s %" PRIu64 "\n", line[i].text, line[i].faults);
                free(line[i].text);
        }
        if (!err && of->lost)
                fprintf(f, "[other] %" PRIu64 "\n", of->lost);
        free(line);
        return err;
}

/* ---- the table ---- */

/* An instruction at which the program waited. */
struct site {
        uint64_t addr, faults, late, ticks;
        const struct stack *most;       /* its stack with most faults */
        uint64_t most_faults;
};

static int by_address(const void *a, const void *b)
{
        const struct site *x = a, *y = b;
        return (x->addr > y->addr) - (x->addr < y->addr);
}

static int by_share(const void *a, const void *b)
{
        const struct site *x = a, *y = b;
        return x->faults != y->faults ? (x->faults < y->faults) - (x->faults > y->faults)
                                      : by_address(a, b);
}

static size_t merge_sites(struct site *site, size_t n)
{
        size_t kept = 0;

        qsort(site, n, sizeof(*site), by_address);
        for (size_t i = 0; i < n; i++) {
                struct site *to = kept ? &site[kept - 1] : NULL;
                if (!to || to->addr != site[i].addr) {
                        site[kept++] = site[i];
                        continue;
                }
                to->faults += site[i].faults;
                to->late += site[i].late;
                to->ticks += site[i].ticks;
                if (site[i].most_faults > to->most_faults) {
                        to->most = site[i].most;
                        to->most_faults = site[i].most_faults;
                }
        }
        qsort(site, kept, sizeof(*site), by_share);
        return kept;
}

static size_t read_sites(const struct stacks *all, struct site *site)
{
        for (size_t i = 0; i < all->n; i++) {
                const struct stack *s = &all->s[i];
                site[i] = (struct site){ s->n ? s->at[0] : 0, s->faults, s->late, s->ticks, s,
                                         s->faults };
        }
        return all->n;
}

/* How many sites the table shows. */
static size_t shown(const struct site *site, size_t n, uint64_t all)
{
        size_t i = 0;

        while (i < n && i < SITES_SHOWN && (i < SITES_ALWAYS || site[i].faults >= all / 1000))
                i++;
        return i;
}

static const char *mean_text(const struct profile_of *of, uint64_t ticks, uint64_t faults,
                             char to[32])
{
        if (!of->tsc_khz || !faults)
                return "-";
        return stats_ns_text((uint64_t)((double)ticks / (double)faults * 1e6 /
                                        (double)of->tsc_khz), to);
}

static void put_place(FILE *f, const struct place *p)
{
        if (p->symbol) {
                put_name(f, p->symbol);
                fprintf(f, "+0x%" PRIx64 " ", p->into);
        }
        fputs(p->symbol ? "(" : "", f);
        put_name(f, file_name(p->object));
        fputs(p->symbol ? ")" : "", f);
}

static void put_callers(const struct profile_of *of, const struct site *s, FILE *f)
{
        struct place p;

        for (unsigned i = 1; i < s->most->n && i <= CALLERS_SHOWN; i++) {
                place_of(of->code, s->most, i, &p);
                fprintf(f, "%*s0x%-10" PRIx64 "  from ", 51, "", p.address);
                put_place(f, &p);
                fputc('\n', f);
        }
}

static void put_site(const struct profile_of *of, const struct site *s, uint64_t all, FILE *f)
{
        char faults[32], late[32], mean[32], region[CODE_REGION];
        struct place p;

        code_place(of->code, s->addr, &p);
        fprintf(f, "%5.1f %% %10s %7s %9s  %-11.11s  0x%-10" PRIx64 " ",
                100.0 * (double)s->faults / (double)all, stats_number_text(s->faults, faults),
                stats_number_text(s->late, late), mean_text(of, s->ticks, s->faults, mean),
                code_region(of->code, s->most->touched, region), p.address);
        put_place(f, &p);
        fputc('\n', f);
        put_callers(of, s, f);
}

static void put_head(const struct profile_of *of, const struct site *total, FILE *f)
{
        char faults[32], late[32], mean[32], cut[32];

        fputs("Faults that waited for far memory: ", f);
        put_name(f, of->program);
        fprintf(f, ", process %d\n", (int)of->pid);
        fprintf(f, "%s faults, %s each; %s of them for a page that was under way already\n",
                stats_number_text(total->faults, faults),
                mean_text(of, total->ticks, total->faults, mean),
                stats_number_text(total->late, late));
        if (of->cut)
                fprintf(f, "%s of them had a stack that found no room: only the instruction is "
                        "known\n", stats_number_text(of->cut, cut));
        fprintf(f, "\n"
                "  share     faults    late mean wait  touched      address      code\n");
}

/* The files in which code was looked for. */
static void put_files(const struct code *c, FILE *f)
{
        fputs("\nFor the line of a source: addr2line -ie FILE ADDRESS\n", f);
        for (size_t i = 0; i < c->nobjects; i++)
                if (c->object[i]->read) {
                        fputs("  ", f);
                        put_name(f, c->object[i]->path);
                        fputc('\n', f);
                }
}

int profile_table(const struct profile_of *of, FILE *f)
{
        struct site *site = calloc(of->stacks->n + 1, sizeof(*site));
        struct site total = { .faults = of->lost, .ticks = of->lost_ticks };
        uint64_t rest = 0;

        if (!site)
                return -ENOMEM;
        size_t n = merge_sites(site, read_sites(of->stacks, site));
        for (size_t i = 0; i < n; i++) {
                total.faults += site[i].faults;
                total.late += site[i].late;
                total.ticks += site[i].ticks;
        }
        put_head(of, &total, f);
        const size_t first = shown(site, n, total.faults);
        for (size_t i = 0; i < first; i++)
                put_site(of, &site[i], total.faults, f);
        for (size_t i = first; i < n; i++)
                rest += site[i].faults;
        if (rest)
                fprintf(f, "%5.1f %% at %zu more places\n",
                        100.0 * (double)rest / (double)total.faults, n - first);
        if (of->lost)
                fprintf(f, "%5.1f %% [other]: the table of places was full\n",
                        100.0 * (double)of->lost / (double)total.faults);
        put_files(of->code, f);
        free(site);
        return 0;
}
