/*
 * A snapshot of the statistics, as its writers read it.
 */
#ifndef VMRUN_STATS_MODEL_H
#define VMRUN_STATS_MODEL_H

#include "stats/histogram.h"
#include "stats/stats.h"

struct stats_item {
        const struct stats_kind *kind;
        char instance[STATS_NAME];      /* "": the only instance */
        uint64_t v;                     /* counter, gauge; of a ratio the dividend */
        uint64_t by;                    /* of a ratio the divisor */
        unsigned times;
        bool number;                    /* the text is a number */
        char *text;
        struct histogram *h;
};

struct stats {
        struct stats_item *item;
        unsigned n, room;
        bool only_counters;
        bool failed;                    /* no memory: it is not complete */
};

/* The longest key, with its NUL. */
#define STATS_KEY 160
/* Replaces the % of a pattern by the instance; returns `to`. */
const char *stats_name(const struct stats_item *i, const char *pattern, char to[STATS_KEY]);
/* A ratio's value. */
double stats_ratio_of(const struct stats_item *i);
/* Latencies without samples, which are not shown. */
bool stats_is_empty(const struct stats_item *i);
/* The item with that key, or NULL. */
const struct stats_item *stats_find(const struct stats *s, const char *key);
uint64_t stats_value(const struct stats *s, const char *key);   /* 0: there is none */

/* Fills s, zeroed, with all that the owners have since the last reset.  Not complete (-ENOMEM) or
 * complete (0), it must be freed. */
int stats_count_up(struct stats *s);
/* Counters and histograms count from 0 from here on.  0 or -ENOMEM. */
int stats_rebase(void);
bool stats_has_base(void);              /* was stats_rebase() called, maybe by the parent? */
/* to: zeroed before.  0 or -ENOMEM; it must be freed. */
int stats_copy(struct stats *to, const struct stats *from);
void stats_free(struct stats *s);
/* Subtracts the counts of an earlier snapshot. */
void stats_subtract(struct stats *s, const struct stats *before);

#endif
