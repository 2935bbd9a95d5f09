/*
 * The statistics as a whole: collected, judged and printed.
 */
#include <errno.h>
#include "stats/formats.h"
#include "stats/model.h"
#include "stats/verdict.h"
#include "stats/write.h"

int stats_collect(struct stats *s)
{
        int err = stats_count_up(s);

        if (!err)
                stats_judge(s);
        return s->failed ? -ENOMEM : err;
}

void stats_print(const struct stats *s, FILE *f, enum stats_format format)
{
        static void (*const print[])(const struct stats *s, FILE *f) = {
                [STATS_FLAT] = stats_print_flat, [STATS_TABLE] = stats_print_table,
                [STATS_JSON] = stats_print_json, [STATS_PROM] = stats_print_prom,
        };

        print[format](s, f);
}

int stats_put(FILE *f, enum stats_format format)
{
        struct stats s = { 0 };
        int err = stats_collect(&s);

        if (!err)
                stats_print(&s, f, format);
        stats_free(&s);
        return err;
}
