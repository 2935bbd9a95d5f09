/*
 * Statistics of vmrun and its program, for --stats.
 *
 * Owners of numbers are registered once.  They add their numbers to a snapshot (model.c), each with
 * a struct stats_kind that says all there is to say of it.  Four writers print a snapshot: lines
 * for scripts (flat.c), a table for people (table.c), JSON (json.c), Prometheus's text format
 * (prom.c).  report.c knows when and where to.  The keys are documented in vmrun(1).
 */
#ifndef VMRUN_STATS_H
#define VMRUN_STATS_H

#include <stdbool.h>
#include <stdint.h>

enum stats_type {
        STATS_COUNTER,                  /* only grows; stats_reset() sets it to 0 */
        STATS_GAUGE,                    /* a value that may grow and shrink */
        STATS_RATIO,                    /* of two counters */
        STATS_TEXT,
        STATS_LATENCY,                  /* a histogram */
};
enum stats_unit { STATS_NUMBER, STATS_BYTES, STATS_NS };

/* One kind of number; static.  It may have several instances: a % in key and title stands for an
 * instance's name. */
struct stats_kind {
        /* "faults.%": the parts between dots nest in JSON.  Of a text the part behind the last dot
         * becomes a label in Prometheus's format, and the first part the metric, as in
         * vmrun_node_info{url="..."}. */
        const char *key;
        enum stats_type type;
        enum stats_unit unit;
        /* Its name in Prometheus's format, without vmrun_ and without the ends for unit and type.
         * NULL: it is not there, since it can be computed from other numbers. */
        const char *metric;
        const char *label;              /* and its label for the instance, if key has a % */
        /* Its name in the table; NULL: not shown there. */
        const char *title;
        /* One sentence, without a full stop.  NULL: not in Prometheus's format, except that a text
         * "LABEL.%.name" stands for its instance there. */
        const char *help;
};

struct stats;                           /* a snapshot */
/* Add an instance; NULL: the only one.  An instance is named by at most STATS_NAME - 1 bytes; a
 * text is copied. */
#define STATS_NAME 48
void stats_count(struct stats *s, const struct stats_kind *k, const char *instance, uint64_t v);
/* The instance is a number. */
void stats_numbered(struct stats *s, const struct stats_kind *k, unsigned instance, uint64_t v);
/* times * a / b; 0 if b is 0.  a, b: counters. */
void stats_ratio(struct stats *s, const struct stats_kind *k, unsigned times, uint64_t a,
                 uint64_t b);
/* number: the text is one, in decimals. */
void stats_text(struct stats *s, const struct stats_kind *k, const char *instance, const char *text,
                bool number);
/* bucket[HIST_BUCKETS]; ticks: the sum of all samples; tsc_khz: of the TSC, 0: unknown, so nothing
 * is added.  Both arrays may grow meanwhile. */
void stats_latency(struct stats *s, const struct stats_kind *k, const char *instance,
                   const uint64_t *bucket, uint64_t ticks, uint64_t tsc_khz);
/* Does the snapshot need counters and latencies only?  Then other items need not be found out. */
bool stats_only_counters(const struct stats *s);

/* Owners add to snapshots in the order in which they were registered, at start.  They are called by
 * any thread, one at a time, while the program runs; they take no lock that is held over a fork,
 * and the counters that they read only grow. */
typedef void stats_fn(struct stats *s);
void stats_register(stats_fn *fn);
/* From here on time counts; then owners are registered. */
void stats_begin(void);

enum stats_format { STATS_FLAT, STATS_TABLE, STATS_JSON, STATS_PROM };

#endif
