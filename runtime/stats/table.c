/*
 * For people, in 80 columns: the verdict, a table of latencies, a histogram of fetches, the counts
 * that are not 0, and a row for each node.  Items are shown under their titles; items without a
 * title are left out.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "common/size.h"
#include "common/wrap.h"
#include "stats/formats.h"
#include "stats/model.h"
#include "stats/verdict.h"

#define SCREEN      80
#define LATENCY     21                  /* its title */
#define COUNT       26                  /* likewise */
#define BAR_WIDTH   40

const char *stats_ns_text(uint64_t ns, char to[32])
{
        static const struct { uint64_t ns; const char *name;
        } units[] = { { 1000000000, "s" }, { 1000000, "ms" }, { 1000, "us" } };

        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
                double v = (double)ns / (double)units[i].ns;
                /* 999.96 us are 1.00 ms */
                if (v < 0.9995)
                        continue;
                snprintf(to, 32, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[i].name);
                return to;
        }
        snprintf(to, 32, "%" PRIu64 " ns", ns);
        return to;
}

const char *stats_number_text(uint64_t n, char to[32])
{
        char digits[32];
        int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
        char *out = to;

        for (int i = 0; i < len; i++) {
                if (i && (len - i) % 3 == 0)
                        *out++ = ',';
                *out++ = digits[i];
        }
        *out = 0;
        return to;
}

/* At most 11 columns: from 100 million on, millions. */
static const char *count_text(uint64_t n, char to[32])
{
        stats_number_text(n < 100000000 ? n : n / 1000000, to);
        return n < 100000000 ? to : strcat(to, " M");
}

static const char *value_text(const struct stats_item *i, char to[80])
{
        char a[32], b[32];

        switch (i->kind->type) {
        case STATS_TEXT:
                snprintf(to, 80, "%.60s", i->text);
                break;
        case STATS_RATIO:
                snprintf(to, 80, "%.2f", stats_ratio_of(i));
                break;
        case STATS_LATENCY:             /* as a column of a row */
                if (stats_is_empty(i))
                        strcpy(to, "-");
                else
                        snprintf(to, 80, "%s, %s",
                                 stats_ns_text(histogram_percentile_ns(i->h, 500000), a),
                                 stats_ns_text(histogram_percentile_ns(i->h, 990000), b));
                break;
        default:
                snprintf(to, 80, "%s", i->kind->unit == STATS_BYTES ? size_text(i->v, a)
                                       : i->kind->unit == STATS_NS  ? stats_ns_text(i->v, a)
                                                                    : count_text(i->v, a));
        }
        return to;
}

static bool is_of_a_node(const struct stats_item *i)
{
        return i->kind->label && strcmp(i->kind->label, "node") == 0;
}

static const char *text_of(const struct stats *s, const char *key)
{
        const struct stats_item *i = stats_find(s, key);

        return i && i->text ? i->text : "unknown";
}

static __attribute__((format(printf, 2, 3))) void print_line(FILE *f, const char *fmt, ...)
{
        char *text;
        va_list ap;

        va_start(ap, fmt);
        int n = vasprintf(&text, fmt, ap);
        va_end(ap);
        if (n < 0)
                return;
        wrap_print(f, text, SCREEN);
        free(text);
}

static void print_head(const struct stats *s, FILE *f)
{
        char *verdict = NULL, a[32];
        size_t size = 0;

        print_line(f, "vmrun %s: %s, process %" PRIu64 ", after %s\n", text_of(s, "about.version"),
                   text_of(s, "about.program"), stats_value(s, "pid"),
                   stats_ns_text(stats_value(s, "elapsed_ns"), a));
        FILE *v = open_memstream(&verdict, &size);
        if (!v)
                return;
        stats_print_verdict(s, v);
        if (fclose(v) == 0)
                wrap_print(f, verdict, SCREEN);
        free(verdict);
}

static void print_place(const struct stats *s, FILE *f)
{
        char a[32], b[32], c[32];

        fprintf(f, "\n");
        const struct stats_item *share = stats_find(s, "local_share_percent");
        if (share)
                print_line(f, "cache %s; far memory in use %s of %s; local share %" PRIu64 " %%\n",
                           size_text(stats_value(s, "cache_bytes"), a),
                           size_text(stats_value(s, "far_used_bytes"), b),
                           size_text(stats_value(s, "far_bytes"), c), share->v);
        print_line(f, "%s; Linux %s; %s, privilege level %" PRIu64 "\n", text_of(s, "about.cpu"),
                   text_of(s, "about.kernel"), text_of(s, "about.kvm"),
                   stats_value(s, "privilege"));
}

/* ---- latencies ---- */

static bool is_shown(const struct stats_item *i)
{
        return i->kind->type == STATS_LATENCY && i->kind->title && !is_of_a_node(i) &&
               !stats_is_empty(i);
}

static void print_latencies(const struct stats *s, FILE *f)
{
        char title[STATS_KEY], text[32];
        bool any = false;

        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n];
                if (!is_shown(i))
                        continue;
                if (!any) {
                        fprintf(f, "\n%-*s%11s%8s", LATENCY, "latency", "count", "mean");
                        for (unsigned p = 0; p < HISTOGRAM_POINTS; p++)
                                fprintf(f, "%8s", histogram_points[p].name);
                        fprintf(f, "\n");
                }
                any = true;
                fprintf(f, "%-*s%11s", LATENCY, stats_name(i, i->kind->title, title),
                        count_text(histogram_count(i->h), text));
                fprintf(f, "%8s", stats_ns_text(histogram_mean_ns(i->h), text));
                for (unsigned p = 0; p < HISTOGRAM_POINTS; p++)
                        fprintf(f, "%8s",
                                stats_ns_text(histogram_percentile_ns(
                                                      i->h, histogram_points[p].per_million),
                                              text));
                fprintf(f, "\n");
        }
}

static void print_histogram(const struct stats_item *i, FILE *f)
{
        uint64_t row[HISTOGRAM_ROWS] = { 0 }, most = 0;
        char title[STATS_KEY], a[32], b[32], c[32];
        unsigned first = HISTOGRAM_ROWS, last = 0;

        for (unsigned n = 0, r = 0; n < HIST_BUCKETS; n++) {
                while (r + 1 < HISTOGRAM_ROWS &&
                       histogram_ns(i->h, histogram_end(n)) > histogram_row_end(r))
                        r++;
                row[r] += i->h->bucket[n];
                if (i->h->bucket[n]) {
                        first = first < r ? first : r;
                        last = r;
                }
                most = most > row[r] ? most : row[r];
        }
        fprintf(f, "\n%s\n", stats_name(i, i->kind->title, title));
        for (unsigned r = first; r <= last; r++) {
                unsigned n = (unsigned)((__uint128_t)row[r] * BAR_WIDTH / most);
                char bar[BAR_WIDTH + 1];
                memset(bar, '@', n);
                /* a row that has samples shows a mark */
                if (!n && row[r])
                        bar[n++] = '.';
                bar[n] = 0;
                fprintf(f, "%9s to %8s%13s |%-*s|\n",
                        stats_ns_text(r ? histogram_row_end(r - 1) : 0, a),
                        stats_ns_text(histogram_row_end(r), b), count_text(row[r], c), BAR_WIDTH,
                        bar);
        }
}

/* ---- counts ---- */

static bool is_counted(const struct stats_item *i)
{
        return i->kind->title && i->kind->type != STATS_LATENCY && i->kind->type != STATS_TEXT &&
               !is_of_a_node(i) && i->v;
}

/* Two in a line. */
static void print_counts(const struct stats *s, FILE *f)
{
        char title[STATS_KEY], value[80];
        bool second = false;

        fprintf(f, "\n");
        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n];
                if (!is_counted(i))
                        continue;
                fprintf(f, "%s%-*s%12s%s", second ? "    " : "", COUNT,
                        stats_name(i, i->kind->title, title), value_text(i, value),
                        second ? "\n" : "");
                second = !second;
        }
        fprintf(f, "%s", second ? "\n" : "");
}

/* ---- nodes: a row for each, a column for each kind that tells something ---- */

#define COLUMNS 16
#define NAME    32

struct column { const struct stats_kind *kind; int width; bool tells; };

static const char *cell_text(const struct stats_item *i, bool name, char to[80])
{
        char value[80];

        if (!i)
                return "-";
        value_text(i, value);
        if (name)                       /* URLs may have the beginning in common */
                snprintf(to, 80, "%s %.*s%s", i->instance, NAME - 6, value,
                         strlen(value) > NAME - 6 ? "..." : "");
        else
                strcpy(to, value);
        return to;
}

static const struct stats_item *cell(const struct stats *s, const struct stats_kind *k,
                                     const char *node)
{
        for (unsigned n = 0; n < s->n; n++)
                if (s->item[n].kind == k && strcmp(s->item[n].instance, node) == 0)
                        return &s->item[n];
        return NULL;
}

/* The first column is the name. */
static unsigned find_columns(const struct stats *s, struct column column[COLUMNS])
{
        unsigned columns = 0;
        char text[80];

        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n];
                unsigned c = 0;
                if (!is_of_a_node(i) || !i->kind->title)
                        continue;
                while (c < columns && column[c].kind != i->kind)
                        c++;
                if (c == COLUMNS)
                        continue;
                if (c == columns)
                        column[columns++] = (struct column){
                                i->kind, (int)strlen(i->kind->title), false
                        };
                int len = (int)strlen(cell_text(i, c == 0, text));
                column[c].width = column[c].width > len ? column[c].width : len;
                column[c].tells |= i->text || (i->h ? !stats_is_empty(i) : i->v > 0);
        }
        return columns;
}

/* Rows with the name and those columns that follow `from` and fit; returns the next one. */
static unsigned print_band(const struct stats *s, const struct column *column, unsigned columns,
                           unsigned from, FILE *f)
{
        unsigned to = from;
        char text[80];

        for (int width = column[0].width; to < columns; to++) {
                width += column[to].tells ? 2 + column[to].width : 0;
                if (width > SCREEN && to > from)
                        break;
        }
        fprintf(f, "\n%-*s", column[0].width, column[0].kind->title);
        for (unsigned c = from; c < to; c++)
                if (column[c].tells)
                        fprintf(f, "  %*s", column[c].width, column[c].kind->title);
        fprintf(f, "\n");
        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *name = &s->item[n];
                if (name->kind != column[0].kind)
                        continue;
                fprintf(f, "%-*s", column[0].width, cell_text(name, true, text));
                for (unsigned c = from; c < to; c++)
                        if (column[c].tells)
                                fprintf(f, "  %*s", column[c].width,
                                        cell_text(cell(s, column[c].kind, name->instance), false,
                                                  text));
                fprintf(f, "\n");
        }
        return to;
}

static void print_nodes(const struct stats *s, FILE *f)
{
        struct column column[COLUMNS];
        unsigned columns = find_columns(s, column);

        for (unsigned at = 1; at < columns; )
                at = print_band(s, column, columns, at, f);
}

void stats_print_table(const struct stats *s, FILE *f)
{
        const struct stats_item *fetch = stats_find(s, "latency_ns.fetch");

        print_head(s, f);
        print_latencies(s, f);
        if (fetch && is_shown(fetch))
                print_histogram(fetch, f);
        print_counts(s, f);
        print_nodes(s, f);
        print_place(s, f);
}
