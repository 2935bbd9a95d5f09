/*
 * For people: a table of latencies, a histogram of each, the counts that matter, a row for each
 * node, and the verdict.  Items are shown under their titles; items without a title are left out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/size.h"
#include "stats/formats.h"
#include "stats/model.h"
#include "stats/verdict.h"

#define TITLE_WIDTH 32
#define BAR_WIDTH   48

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
                                                                    : stats_number_text(i->v, a));
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

static void print_head(const struct stats *s, FILE *f)
{
        char a[32], b[32], c[32];

        fprintf(f, "vmrun %s: %s, process %" PRIu64 ", after %s\n", text_of(s, "about.version"),
                text_of(s, "about.program"), stats_value(s, "pid"),
                stats_ns_text(stats_value(s, "elapsed_ns"), a));
        fprintf(f, "%s; Linux %s; %s, privilege level %" PRIu64 "\n", text_of(s, "about.cpu"),
                text_of(s, "about.kernel"), text_of(s, "about.kvm"), stats_value(s, "privilege"));
        const struct stats_item *share = stats_find(s, "local_share_percent");
        if (share)
                fprintf(f, "cache %s; far memory in use %s of %s; local share %" PRIu64 " %%\n",
                        size_text(stats_value(s, "cache_bytes"), a),
                        size_text(stats_value(s, "far_used_bytes"), b),
                        size_text(stats_value(s, "far_bytes"), c), share->v);
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
                        fprintf(f, "\n%-*s%13s%9s", TITLE_WIDTH, "latency", "count", "mean");
                        for (unsigned p = 0; p < HISTOGRAM_POINTS; p++)
                                fprintf(f, "%9s", histogram_points[p].name);
                        fprintf(f, "\n");
                }
                any = true;
                fprintf(f, "%-*s%13s", TITLE_WIDTH, stats_name(i, i->kind->title, title),
                        stats_number_text(histogram_count(i->h), text));
                fprintf(f, "%9s", stats_ns_text(histogram_mean_ns(i->h), text));
                for (unsigned p = 0; p < HISTOGRAM_POINTS; p++)
                        fprintf(f, "%9s",
                                stats_ns_text(histogram_percentile_ns(
                                                      i->h, histogram_points[p].per_million),
                                              text));
                fprintf(f, "\n");
        }
}

/* Rows of a histogram end at 1, 2, 5, 10, 20 ... ns.  A bucket counts in the row in which it
 * ends. */
#define ROWS 40

static uint64_t row_end(unsigned row)
{
        static const unsigned char step[] = { 1, 2, 5 };
        uint64_t end = step[row % 3];

        for (unsigned i = 0; i < row / 3; i++)
                end *= 10;
        return end;
}

static void print_histogram(const struct stats_item *i, FILE *f)
{
        uint64_t row[ROWS] = { 0 }, most = 0;
        char title[STATS_KEY], a[32], b[32], c[32];
        unsigned first = ROWS, last = 0;

        for (unsigned n = 0, r = 0; n < HIST_BUCKETS; n++) {
                while (r + 1 < ROWS && histogram_ns(i->h, histogram_end(n)) > row_end(r))
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
                fprintf(f, "%9s to %8s%13s |%-*s|\n", stats_ns_text(r ? row_end(r - 1) : 0, a),
                        stats_ns_text(row_end(r), b), stats_number_text(row[r], c), BAR_WIDTH, bar);
        }
}

/* ---- counts ---- */

static void print_counts(const struct stats *s, FILE *f)
{
        char title[STATS_KEY], value[80];
        unsigned column = 0;

        fprintf(f, "\n");
        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n];
                if (!i->kind->title || i->kind->type == STATS_LATENCY ||
                    i->kind->type == STATS_TEXT || is_of_a_node(i))
                        continue;
                fprintf(f, "%s%-*s%13s", column ? "    " : "", TITLE_WIDTH,
                        stats_name(i, i->kind->title, title), value_text(i, value));
                column = !column;
                if (!column)
                        fprintf(f, "\n");
        }
        fprintf(f, "%s", column ? "\n" : "");
}

/* ---- nodes: a row for each, a column for each kind ---- */

#define COLUMNS 16

static void print_cell(FILE *f, unsigned column, int width, const char *text)
{
        if (column == 0)
                fprintf(f, "%-*s", width, text);        /* a name */
        else
                fprintf(f, "  %*s", width, text);
}

static const struct stats_item *cell(const struct stats *s, const struct stats_kind *k,
                                     const char *node)
{
        for (unsigned n = 0; n < s->n; n++)
                if (s->item[n].kind == k && strcmp(s->item[n].instance, node) == 0)
                        return &s->item[n];
        return NULL;
}

static void print_nodes(const struct stats *s, FILE *f)
{
        const struct stats_kind *column[COLUMNS];
        int width[COLUMNS];
        unsigned columns = 0;
        char value[80];

        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n];
                unsigned c = 0;
                if (!is_of_a_node(i) || !i->kind->title)
                        continue;
                while (c < columns && column[c] != i->kind)
                        c++;
                if (c == COLUMNS)
                        continue;
                if (c == columns) {
                        column[columns++] = i->kind;
                        width[c] = (int)strlen(i->kind->title);
                }
                int len = (int)strlen(value_text(i, value));
                width[c] = width[c] > len ? width[c] : len;
        }
        if (!columns)
                return;
        fprintf(f, "\n");
        for (unsigned c = 0; c < columns; c++)
                print_cell(f, c, width[c], column[c]->title);
        fprintf(f, "\n");
        for (unsigned n = 0; n < s->n; n++) {
                if (s->item[n].kind != column[0])
                        continue;
                for (unsigned c = 0; c < columns; c++) {
                        const struct stats_item *i = cell(s, column[c], s->item[n].instance);
                        print_cell(f, c, width[c], i ? value_text(i, value) : "-");
                }
                fprintf(f, "\n");
        }
}

void stats_print_table(const struct stats *s, FILE *f)
{
        char *verdict = NULL;
        size_t size = 0;

        print_head(s, f);
        print_latencies(s, f);
        for (unsigned n = 0; n < s->n; n++)
                if (is_shown(&s->item[n]))
                        print_histogram(&s->item[n], f);
        print_counts(s, f);
        print_nodes(s, f);
        FILE *v = open_memstream(&verdict, &size);
        if (!v)
                return;
        stats_print_verdict(s, v);
        if (fclose(v) == 0 && size)
                fprintf(f, "\n%s", verdict);
        free(verdict);
}
