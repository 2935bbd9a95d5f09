/*
 * Prometheus's text format, version 0.0.4, for the textfile collector of node_exporter: base units,
 * one HELP and one TYPE a metric, cumulative buckets.  Each sample has the report's name as a
 * label, so that the files of several processes can be collected together, and a series goes on
 * when the program is started again.  The process is a label of vmrun_info alone.
 *
 * A histogram has few buckets, since each is a time series; their bounds do not depend on the TSC,
 * so that those of several hosts can be added up.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/prom.h"
#include "stats/formats.h"
#include "stats/model.h"

/* Rows of histogram.h: of 100 ns to 10 s. */
#define FIRST_BOUND 6
#define LAST_BOUND  30

/* Texts "LABEL.INSTANCE.name": what stands for an instance. */
#define NAMES 128

struct prom {
        const struct stats *s;
        FILE *f;
        const char *report;
        const struct stats_item *named[NAMES];
        unsigned names;
};

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n >= m && strcmp(text + n - m, end) == 0;
}

static void find_names(struct prom *p)
{
        for (unsigned n = 0; n < p->s->n && p->names < NAMES; n++) {
                const struct stats_kind *k = p->s->item[n].kind;
                if (k->type == STATS_TEXT && k->label && !k->help && ends_with(k->key, ".%.name"))
                        p->named[p->names++] = &p->s->item[n];
        }
}

/* The value of the label for an instance: of two with one name the second has its number, too. */
static void print_instance(const struct prom *p, const char *label, const char *instance)
{
        const struct stats_item *of = NULL;
        bool twice = false;

        for (unsigned n = 0; n < p->names && !of; n++)
                if (strcmp(p->named[n]->kind->label, label) == 0 &&
                    strcmp(p->named[n]->instance, instance) == 0)
                        of = p->named[n];
        for (unsigned n = 0; of && p->named[n] != of; n++)
                twice |= p->named[n]->kind == of->kind && strcmp(p->named[n]->text, of->text) == 0;
        prom_escaped(p->f, of ? of->text : instance);
        if (twice)
                fprintf(p->f, " (%s)", instance);
}

/* The name of a metric or label: a character that it may not have becomes an underscore. */
static void print_name(FILE *f, const char *name, size_t n)
{
        for (size_t i = 0; i < n && name[i]; i++)
                putc(isalnum((unsigned char)name[i]) ? name[i] : '_', f);
}

/* The labels that all samples have, after the brace; more may follow. */
static void print_labels(const struct prom *p, const char *label, const char *value)
{
        fprintf(p->f, "{vmrun=\"");
        prom_escaped(p->f, p->report);
        putc('"', p->f);
        if (label && *value) {
                fprintf(p->f, ",%s=\"", label);
                print_instance(p, label, value);
                putc('"', p->f);
        }
}

static void print_value(const struct prom *p, const struct stats_item *i)
{
        if (i->kind->type == STATS_RATIO)
                fprintf(p->f, " %.6f\n", stats_ratio_of(i));
        else if (i->kind->unit == STATS_NS)
                fprintf(p->f, " %" PRIu64 ".%09" PRIu64 "\n", i->v / 1000000000,
                        i->v % 1000000000);
        else
                fprintf(p->f, " %" PRIu64 "\n", i->v);
}

static const char *metric(const struct stats_kind *k, char to[STATS_KEY])
{
        static const char *const units[] = {
                [STATS_NUMBER] = "", [STATS_BYTES] = "_bytes", [STATS_NS] = "_seconds"
        };

        snprintf(to, STATS_KEY, "vmrun_%s%s%s", k->metric, units[k->unit],
                 k->type == STATS_COUNTER ? "_total" : "");
        return to;
}

static void print_latency(const struct prom *p, const struct stats_item *i)
{
        const struct histogram *h = i->h;
        char name[STATS_KEY];
        uint64_t below = 0;

        metric(i->kind, name);
        for (unsigned row = FIRST_BOUND, b = 0; row <= LAST_BOUND; row++) {
                while (b < HIST_BUCKETS &&
                       histogram_ns(h, histogram_end(b)) <= histogram_row_end(row))
                        below += h->bucket[b++];
                fprintf(p->f, "%s_bucket", name);
                print_labels(p, i->kind->label, i->instance);
                fprintf(p->f, ",le=\"%g\"} %" PRIu64 "\n",
                        (double)histogram_row_end(row) / 1e9, below);
        }
        fprintf(p->f, "%s_bucket", name);
        print_labels(p, i->kind->label, i->instance);
        fprintf(p->f, ",le=\"+Inf\"} %" PRIu64 "\n", histogram_count(h));
        fprintf(p->f, "%s_sum", name);
        print_labels(p, i->kind->label, i->instance);
        fprintf(p->f, "} %" PRIu64 ".%09" PRIu64 "\n", histogram_sum_ns(h) / 1000000000,
                histogram_sum_ns(h) % 1000000000);
        fprintf(p->f, "%s_count", name);
        print_labels(p, i->kind->label, i->instance);
        fprintf(p->f, "} %" PRIu64 "\n", histogram_count(h));
}

static void print_kind(const struct prom *p, const struct stats_kind *k)
{
        char name[STATS_KEY];

        metric(k, name);
        fprintf(p->f, "# HELP %s %s\n# TYPE %s %s\n", name, k->help, name,
                k->type == STATS_COUNTER ? "counter" :
                k->type == STATS_LATENCY ? "histogram" : "gauge");
        for (unsigned n = 0; n < p->s->n; n++) {
                const struct stats_item *i = &p->s->item[n];
                if (i->kind != k)
                        continue;
                if (k->type == STATS_LATENCY) {
                        print_latency(p, i);
                        continue;
                }
                fprintf(p->f, "%s", name);
                print_labels(p, k->label, i->instance);
                putc('}', p->f);
                print_value(p, i);
        }
}

/* ---- texts: all of a group are labels of one sample ---- */

static size_t group_of(const struct stats_kind *k) { return strcspn(k->key, "."); }

static bool is_about(const struct stats_kind *k) { return strncmp(k->key, "about.", 6) == 0; }

/* "vmrun_node_info"; of what runs where just "vmrun_info". */
static void print_metric(const struct prom *p, const struct stats_kind *k)
{
        fprintf(p->f, "vmrun_");
        if (!is_about(k)) {
                print_name(p->f, k->key, group_of(k));
                putc('_', p->f);
        }
        fprintf(p->f, "info");
}

static bool same_group(const struct stats_kind *a, const struct stats_kind *b)
{
        return group_of(a) == group_of(b) && strncmp(a->key, b->key, group_of(a)) == 0;
}

/* Is the instance the name of the text itself, and not of the thing that it describes? */
static bool names_itself(const struct stats_kind *k)
{
        size_t n = strlen(k->key);

        return n && k->key[n - 1] == '%';
}

static bool same_sample(const struct stats_item *a, const struct stats_item *b)
{
        return b->kind->type == STATS_TEXT && b->kind->help && same_group(a->kind, b->kind) &&
               (names_itself(b->kind) || strcmp(a->instance, b->instance) == 0);
}

static void print_texts(const struct prom *p, const struct stats_item *of)
{
        char name[STATS_KEY];

        print_metric(p, of->kind);
        print_labels(p, of->kind->label, names_itself(of->kind) ? "" : of->instance);
        if (is_about(of->kind))
                fprintf(p->f, ",pid=\"%" PRIu64 "\",exec=\"%" PRIu64 "\"",
                        stats_value(p->s, "pid"), stats_value(p->s, "execs"));
        for (unsigned n = 0; n < p->s->n; n++) {
                const struct stats_item *i = &p->s->item[n];
                if (!same_sample(of, i))
                        continue;
                const char *key = stats_name(i, i->kind->key, name), *last = strrchr(key, '.');
                last = last ? last + 1 : key;
                putc(',', p->f);
                print_name(p->f, last, strlen(last));
                fprintf(p->f, "=\"");
                prom_escaped(p->f, i->text);
                putc('"', p->f);
        }
        fprintf(p->f, "} 1\n");
}

/* first: the group's first item. */
static void print_group(const struct prom *p, unsigned first)
{
        const struct stats_item *of = &p->s->item[first];

        fprintf(p->f, "# HELP ");
        print_metric(p, of->kind);
        fprintf(p->f, " %s\n# TYPE ", of->kind->help);
        print_metric(p, of->kind);
        fprintf(p->f, " gauge\n");
        for (unsigned n = first; n < p->s->n; n++) {
                const struct stats_item *i = &p->s->item[n];
                bool seen = i->kind->type != STATS_TEXT || !i->kind->help ||
                            !same_group(of->kind, i->kind);
                for (unsigned m = first; !seen && m < n; m++)
                        seen = same_sample(i, &p->s->item[m]);
                if (!seen)
                        print_texts(p, i);
        }
}

void stats_print_prom(const struct stats *s, FILE *f)
{
        const struct stats_item *name = stats_find(s, "name");
        struct prom p = { .s = s, .f = f, .report = name ? name->text : "" };

        find_names(&p);

        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_kind *k = s->item[n].kind;
                bool text = k->type == STATS_TEXT, seen = text ? !k->help : !k->metric;
                for (unsigned m = 0; !seen && m < n; m++) {
                        const struct stats_kind *o = s->item[m].kind;
                        seen = text ? o->type == STATS_TEXT && o->help && same_group(k, o) : o == k;
                }
                if (!seen && text)
                        print_group(&p, n);
                else if (!seen)
                        print_kind(&p, k);
        }
}
