/*
 * JSON (RFC 8259): one object, in which the parts of a key nest: faults.fetch is
 * {"faults": {"fetch": 3}}.  The points of a latency are named as in the flat format, in
 * nanoseconds; beside them stands the histogram: [upper end in nanoseconds, samples] of each bucket
 * that has any.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/json.h"
#include "stats/formats.h"
#include "stats/model.h"

#define DEPTH 4                         /* parts of a key */

struct entry {
        const struct stats_item *item;
        unsigned parts;
        char part[DEPTH][STATS_NAME];
        bool done;
};
struct json { FILE *f; struct entry *e; unsigned n; };

static void indent(FILE *f, unsigned depth) { fprintf(f, "%*s", (int)(2 * depth), ""); }

static void print_latency(FILE *f, const struct histogram *h, unsigned depth)
{
        bool first = true;

        fprintf(f, "{");
        for (unsigned p = 0; p < HISTOGRAM_POINTS; p++)
                fprintf(f, "\"%s\": %" PRIu64 ", ", histogram_points[p].name,
                        histogram_percentile_ns(h, histogram_points[p].per_million));
        fprintf(f, "\"mean\": %" PRIu64 ", \"count\": %" PRIu64 ", \"sum\": %" PRIu64 ",\n",
                histogram_mean_ns(h), histogram_count(h), histogram_sum_ns(h));
        indent(f, depth + 1);
        fprintf(f, "\"buckets\": [");
        for (unsigned b = 0; b < HIST_BUCKETS; b++)
                if (h->bucket[b]) {
                        fprintf(f, "%s[%" PRIu64 ", %" PRIu64 "]", first ? "" : ", ",
                                histogram_ns(h, histogram_end(b)), h->bucket[b]);
                        first = false;
                }
        fprintf(f, "]}");
}

static void print_value(FILE *f, const struct stats_item *i, unsigned depth)
{
        switch (i->kind->type) {
        case STATS_TEXT:
                if (i->number)
                        fprintf(f, "%s", i->text);
                else
                        json_string(f, i->text);
                break;
        case STATS_RATIO:
                fprintf(f, "%.2f", stats_ratio_of(i));
                break;
        case STATS_LATENCY:
                print_latency(f, i->h, depth);
                break;
        default:
                fprintf(f, "%" PRIu64, i->v);
        }
}

static bool same_parts(const struct entry *a, const struct entry *b, unsigned parts)
{
        for (unsigned i = 0; i < parts; i++)
                if (i >= a->parts || i >= b->parts || strcmp(a->part[i], b->part[i]) != 0)
                        return false;
        return true;
}

/* The members of the object that has the first `depth` parts of `of`. */
static void print_members(struct json *j, const struct entry *of, unsigned depth)
{
        bool first = true;

        for (unsigned n = 0; n < j->n; n++) {
                struct entry *e = &j->e[n];
                if (e->done || !same_parts(e, of, depth))
                        continue;
                fprintf(j->f, "%s\n", first ? "" : ",");
                first = false;
                indent(j->f, depth + 1);
                json_string(j->f, e->part[depth]);
                fprintf(j->f, ": ");
                if (depth + 1 == e->parts) {
                        print_value(j->f, e->item, depth + 1);
                        e->done = true;
                        continue;
                }
                fprintf(j->f, "{");
                print_members(j, e, depth + 1);
                fprintf(j->f, "\n");
                indent(j->f, depth + 1);
                fprintf(j->f, "}");
        }
}

/* Splits the key at the dots of its pattern: dots in an instance's name do not count. */
static void split(struct entry *e, const struct stats_item *i)
{
        char part[STATS_KEY], name[STATS_KEY];
        const char *at = i->kind->key;

        *e = (struct entry){ .item = i };
        while (e->parts < DEPTH) {
                size_t n = e->parts + 1 < DEPTH ? strcspn(at, ".") : strlen(at);
                snprintf(part, sizeof(part), "%.*s", (int)n, at);
                snprintf(e->part[e->parts++], STATS_NAME, "%s", stats_name(i, part, name));
                if (!at[n])
                        return;
                at += n + 1;
        }
}

void stats_print_json(const struct stats *s, FILE *f)
{
        struct json j = { .f = f, .e = calloc(s->n ? s->n : 1, sizeof(struct entry)) };

        if (!j.e) {
                fprintf(f, "{}\n");
                return;
        }
        for (unsigned n = 0; n < s->n; n++)
                if (!stats_is_empty(&s->item[n]))
                        split(&j.e[j.n++], &s->item[n]);
        fprintf(f, "{");
        print_members(&j, &j.e[0], 0);
        fprintf(f, "\n}\n");
        free(j.e);
}
