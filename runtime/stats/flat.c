/*
 * The flat format: "key value" lines, for scripts: `awk '$1 == "faults.fetch" { print $2 }'` is
 * enough to parse it.  Counts of zero are printed too, unless their owner leaves them out.
 */
#include <inttypes.h>
#include "stats/formats.h"
#include "stats/model.h"

static void print_latency(const struct stats_item *i, const char *key, FILE *f)
{
        for (unsigned p = 0; p < HISTOGRAM_POINTS; p++)
                fprintf(f, "%s.%s %" PRIu64 "\n", key, histogram_points[p].name,
                        histogram_percentile_ns(i->h, histogram_points[p].per_million));
        fprintf(f, "%s.mean %" PRIu64 "\n", key, histogram_mean_ns(i->h));
        fprintf(f, "%s.count %" PRIu64 "\n", key, histogram_count(i->h));
}

void stats_print_flat(const struct stats *s, FILE *f)
{
        char key[STATS_KEY];

        for (unsigned n = 0; n < s->n; n++) {
                const struct stats_item *i = &s->item[n];
                stats_name(i, i->kind->key, key);
                if (i->kind->type == STATS_TEXT)
                        fprintf(f, "%s %s\n", key, i->text);
                else if (i->kind->type == STATS_RATIO)
                        fprintf(f, "%s %.2f\n", key, stats_ratio_of(i));
                else if (i->kind->type != STATS_LATENCY)
                        fprintf(f, "%s %" PRIu64 "\n", key, i->v);
                else if (!stats_is_empty(i))
                        print_latency(i, key, f);
        }
}
